package module

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Find returns the directories of the modules in and below dir, sorted: the Go packages with a directive, whichever Go
// modules they belong to, and the Kotlin projects with an annotation. Where there is none, and where there are only Kotlin
// files, it is dir itself. Hidden directories, testdata, vendor, node_modules and what was built are left out, and links
// are not followed.
func Find(dir string) []string {
	var found, kotlin []string
	goFiles := false
	add := func(to *[]string, at string) {
		if !slices.Contains(*to, at) {
			*to = append(*to, at)
		}
	}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // what cannot be read is no module; of dir itself, Read says so
		}
		name, at := e.Name(), filepath.Dir(path)
		switch {
		case e.IsDir() && path != dir && leftOut(name):
			return fs.SkipDir
		case e.IsDir() || !e.Type().IsRegular():
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			if goFiles = true; mentions(path, directiveLine) {
				add(&found, at)
			}
		case strings.HasSuffix(name, ".kt"):
			if mentions(path, annotationLine) {
				add(&kotlin, project(dir, at))
			}
		}
		return nil
	})
	for _, k := range kotlin {
		add(&found, k)
	}
	if len(found) == 0 || !goFiles {
		return []string{dir}
	}
	slices.Sort(found)
	if i := slices.Index(found, filepath.Clean(dir)); i >= 0 {
		found[i] = dir // as the caller wrote it
	}
	return found
}

func leftOut(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || slices.Contains([]string{"testdata", "vendor", "node_modules", "build", "target"}, name)
}

// project is the directory of the Kotlin project that the files in at belong to: the nearest with a build file, or else
// that of src.
func project(top, at string) string {
	for dir := at; ; dir = filepath.Dir(dir) {
		for _, name := range []string{"build.gradle", "build.gradle.kts", "pom.xml"} {
			if isRegular(filepath.Join(dir, name)) {
				return dir
			}
		}
		if dir == filepath.Clean(top) || dir == filepath.Dir(dir) {
			break
		}
	}
	if before, _, ok := strings.Cut(at+"/", string(filepath.Separator)+"src"+string(filepath.Separator)); ok && len(before) >= len(filepath.Clean(top)) {
		return before
	}
	return at
}

func directiveLine(line string) bool {
	return strings.HasPrefix(line, "//carillon:") || strings.HasPrefix(line, "//ftl:")
}

func annotationLine(line string) bool { return strings.Contains(line, "@Cron") }

// mentions reports whether a line of a file is such a one. What cannot be read has none.
func mentions(path string, such func(line string) bool) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		if such(lines.Text()) {
			return true
		}
	}
	return lines.Err() != nil // too long a line to tell: let the reader look
}
