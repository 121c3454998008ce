package permission

import (
	"fmt"
	"slices"
	"strings"
)

// Reserved are workers that only operators may use.
type Reserved []string

// Covers says whether a worker is one of them, by any of its names: the one that somebody used, the ref of its verb
// (empty: it is none), and the two parts of that.
func (r Reserved) Covers(worker, ref string) bool {
	names := []string{VerbName(worker), ref}
	for _, name := range names[:2] {
		module, verb, _ := strings.Cut(name, ".")
		names = append(names, module, verb)
	}
	return slices.ContainsFunc(r, func(name string) bool { return name != "" && slices.Contains(names, VerbName(name)) })
}

// VerbName is a worker's name as a verb or a module can be called, whose names have no hyphens: share-upload is shareUpload.
func VerbName(worker string) string {
	parts := strings.Split(worker, "-")
	for i, part := range parts[1:] {
		if part != "" {
			parts[i+1] = strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return strings.Join(parts, "")
}

// WorkerName is the other way round: the name of a verb or a module as those of workers are written.
func WorkerName(verb string) string {
	var b strings.Builder
	for i, c := range verb {
		if i > 0 && c >= 'A' && c <= 'Z' {
			b.WriteByte('-')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// Check refuses what can be no worker's name.
func (r Reserved) Check() error {
	for _, name := range r {
		if !plain(name) || strings.Contains(name, ",") || strings.Count(name, ".") > 1 {
			return fmt.Errorf("%s is no name of a worker: write verb, module or module.verb", quote(name))
		}
	}
	return nil
}
