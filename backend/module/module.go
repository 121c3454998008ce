// Package module reads a module's source directory: the annotated verbs of a Go package or of a directory of Kotlin
// files become a schema, and a Go package becomes a runner binary with a generated main beside it.
//
// It runs the go command and reads files; it never writes into the user's tree, and it must never know a controller, a
// database or what a runner does once it is built. Everything that is wrong with a source is reported at once as
// schema.Errors, each with file, line, column and the line itself; a go command that cannot be run, or a directory that
// is no module, is an ordinary error.
package module

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"carillon/backend/core/schema"
)

// Source is a module as it was found in a directory.
type Source struct {
	Dir    string // absolute, without links
	Module schema.Module
	// Digest names this version of the code: the same schema and files give the same one on any machine and path. It is
	// empty when the source has faults.
	Digest string
	// Funcs is the function behind each verb, by the verb's name.
	Funcs map[string]string

	makers     map[string]string // the SDK's function that makes a handler of each verb's
	given      string            // the directory as the caller wrote it
	importPath string            // of a Go package
	pkgName    string            // its package clause
	gomod      goModule          // the Go module that it belongs to
	inputs     []inputFile       // what the digest covers
	watch      []string
}

// inputFile is one file that the digest covers, under a name that is the same on every machine.
type inputFile struct {
	name string
	path string
}

// Read loads the module in dir. On faults of the source it returns them as schema.Errors, together with what could be
// read, so that a caller can watch Files for the correction.
func Read(ctx context.Context, dir string) (Source, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs) // the go command would not find the overlay below a link
	}
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		err = pe.Err // which path it is about is said already
	}
	if err != nil {
		return Source{}, fmt.Errorf("read module %s: %w", dir, err)
	}
	src := Source{Dir: abs, given: dir, watch: []string{abs}}
	entries, err := os.ReadDir(abs)
	if err != nil {
		return src, fmt.Errorf("read module %s: %w", dir, err)
	}
	var goFiles, kotlinFiles []string
	for _, e := range entries {
		switch name := e.Name(); {
		case e.IsDir():
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			goFiles = append(goFiles, name)
		case strings.HasSuffix(name, ".kt"):
			kotlinFiles = append(kotlinFiles, name)
		}
	}
	var where schema.Where
	var faults schema.Errors
	switch {
	case len(goFiles) > 0:
		where, faults, err = src.readGo(ctx)
	default:
		if len(kotlinFiles) == 0 {
			kotlinFiles, err = kotlinTree(abs)
		}
		if err == nil && len(kotlinFiles) == 0 {
			err = errors.New("no Go and no Kotlin files in it")
		}
		if err == nil {
			where, faults, err = src.readKotlin(kotlinFiles)
		}
	}
	if err != nil {
		return src, fmt.Errorf("read module %s: %w", dir, err)
	}
	faults = append(faults, schema.ValidateSource(src.Module, where, time.Now())...)
	if len(faults) > 0 {
		faults.Sort()
		return src, bounded(faults)
	}
	if src.Digest, err = src.digest(); err != nil {
		return src, fmt.Errorf("read module %s: %w", dir, err)
	}
	return src, nil
}

// Files are the files and directories that a change of the module touches: a newer modification time of any of them is
// the reason to Read again. A directory's changes when a file appears in it or goes.
func Files(src Source) []string { return slices.Clone(src.watch) }

// maxFaults bounds what is reported of one source.
const maxFaults = 100

func bounded(faults schema.Errors) schema.Errors {
	if n := len(faults) - maxFaults; n > 0 {
		faults = append(faults[:maxFaults:maxFaults], &schema.Error{Message: fmt.Sprintf("and %d more", n)})
	}
	return faults
}

// noModule says what is missing when the go command finds no go.mod.
func noModule(dir string) error {
	return fmt.Errorf("%s belongs to no Go module: run go mod init there", dir)
}

// isRegular reports whether path is a file that can be read for the digest.
func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// kotlinTree finds the .kt files below dir, since Kotlin projects keep theirs in src/main/kotlin. Hidden and build
// directories and tests are left out, and links are not followed.
func kotlinTree(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := e.Name()
		rel, _ := filepath.Rel(dir, path)
		if e.IsDir() {
			if path != dir && (strings.HasPrefix(name, ".") || name == "build" || name == "target" || filepath.ToSlash(rel) == "src/test") {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".kt") && e.Type().IsRegular() {
			files = append(files, rel)
		}
		if len(files) > 10_000 {
			return errors.New("more than 10,000 Kotlin files")
		}
		return nil
	})
	return files, err
}
