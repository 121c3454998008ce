package module

import (
	"bytes"
	"errors"
	"flag"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"carillon/backend/core/schema"
)

var update = flag.Bool("update", false, "write what came out into testdata")

// extract writes the files of an archive below a new directory, except for those that hold what is wanted.
func extract(t *testing.T, ar *txtar.Archive) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range ar.Files {
		if f.Name == "want" {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// report is what a person sees of a source: its schema, or everything that is wrong with it.
func report(t *testing.T, dir string) string {
	t.Helper()
	src, err := Read(t.Context(), filepath.Join(dir, "m"))
	out := src.Module.Text()
	if es, ok := errors.AsType[schema.Errors](err); ok {
		out = es.Format()
		if src.Digest != "" {
			t.Error("a source with faults has a digest")
		}
	} else if err != nil {
		out = err.Error() + "\n"
	} else if src.Digest == "" {
		t.Error("a good source has no digest")
	}
	return strings.ReplaceAll(out, dir+string(filepath.Separator), "")
}

// TestSources reads the module m of every archive of testdata. The archive's file "want" is what comes out.
func TestSources(t *testing.T) {
	archives, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := report(t, extract(t, ar))
			i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == "want" })
			if i < 0 {
				i = len(ar.Files)
				ar.Files = append(ar.Files, txtar.File{Name: "want"})
			}
			if *update {
				ar.Files[i].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(string(ar.Files[i].Data), got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

const digestSource = `
-- m/go.mod --
module example.com/tiny

go 1.24
-- m/tiny.go --
package tiny

import (
	"context"

	"example.com/tiny/internal/work"
)

//carillon:cron 0 0 * * *
func Nightly(ctx context.Context) error { return work.Do(ctx) }
-- m/tiny_test.go --
package tiny
-- m/windows.go --
//go:build windows

package tiny
-- m/internal/work/work.go --
package work

import "context"

func Do(ctx context.Context) error { return ctx.Err() }
-- m/unrelated/unrelated.go --
package unrelated
`

func digestOf(t *testing.T, dir string) string {
	t.Helper()
	src, err := Read(t.Context(), filepath.Join(dir, "m"))
	if err != nil {
		t.Fatal(err)
	}
	return src.Digest
}

func TestTheSameCodeHasTheSameDigestAnywhere(t *testing.T) {
	ar := txtar.Parse([]byte(digestSource))
	first := extract(t, ar)
	want := digestOf(t, first)
	if got := digestOf(t, extract(t, ar)); got != want {
		t.Errorf("in another directory: %s, want %s", got, want)
	}
	for _, name := range []string{"m/tiny_test.go", "m/unrelated/unrelated.go", "m/notes.txt"} {
		appendTo(t, filepath.Join(first, name), "\n// more\n")
		if got := digestOf(t, first); got != want {
			t.Errorf("a change of %s, which is not built, changes the digest", name)
		}
	}
}

func TestChangedCodeHasAnotherDigest(t *testing.T) {
	ar := txtar.Parse([]byte(digestSource))
	first := extract(t, ar)
	seen := map[string]string{digestOf(t, first): "the original"}
	for _, name := range []string{"m/tiny.go", "m/internal/work/work.go", "m/windows.go", "m/go.mod", "m/go.sum", "m/new.go"} {
		text := "\n// more\n"
		switch filepath.Base(name) {
		case "new.go":
			text = "package tiny\n"
		case "go.sum":
			text = "example.com/x v1.0.0 h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"
		}
		appendTo(t, filepath.Join(first, name), text)
		digest := digestOf(t, first)
		if before, ok := seen[digest]; ok {
			t.Errorf("a change of %s gives the digest of %s", name, before)
		}
		seen[digest] = name
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFilesNamesAllThatAChangeTouches(t *testing.T) {
	dir := extract(t, txtar.Parse([]byte(digestSource)))
	want := []string{"m", "m/go.mod", "m/internal/work", "m/internal/work/work.go", "m/tiny.go", "m/windows.go"}
	check := func(src Source) {
		t.Helper()
		var got []string
		for _, f := range Files(src) {
			rel, err := filepath.Rel(dir, f)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, filepath.ToSlash(rel))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("files (-want +got):\n%s", d)
		}
	}
	src, err := Read(t.Context(), filepath.Join(dir, "m"))
	if err != nil {
		t.Fatal(err)
	}
	check(src)
	appendTo(t, filepath.Join(dir, "m", "tiny.go"), "oops")
	src, err = Read(t.Context(), filepath.Join(dir, "m"))
	if err == nil {
		t.Fatal("no fault")
	}
	check(src) // so that the correction is noticed
}

// snapshot is every file below dir with its text, to see that a build leaves no trace.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			files[path] = "dir"
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestReadOfNoModule(t *testing.T) {
	empty := t.TempDir()
	if _, err := Read(t.Context(), empty); err == nil || !strings.Contains(err.Error(), "no Go and no Kotlin files") {
		t.Errorf("empty directory: %v", err)
	}
	if _, err := Read(t.Context(), filepath.Join(empty, "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
	var out bytes.Buffer
	if _, err := Build(t.Context(), empty, filepath.Join(empty, "x"), &out); err == nil {
		t.Error("built nothing")
	}
}

// FuzzKotlin: no text makes the reader panic or hang, and every fault can be shown.
func FuzzKotlin(f *testing.F) {
	for _, name := range []string{"kotlin", "kotlinfaults"} {
		ar, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(ar.Files[0].Data))
	}
	for _, s := range []string{`@Cron(`, "@Cron(\"", `@Cron("""`, `"${"`, `'\`, "`", `@a.`, `fun <`, `@Cron("x") fun a.`, `/*/*`, `@Cron("x") fun a(b: C<D,`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := Source{Module: schema.Module{Name: "m"}, Funcs: map[string]string{}}
		k := kotlinReader{source: &s, where: schema.Where{}}
		k.file("a.kt", text)
		k.faults.Format()
		schema.ValidateSource(s.Module, k.where, time.Now()).Format()
	})
}

// FuzzMeantDirective: no comment makes the search for near-misses panic, and what it proposes is a directive.
func FuzzMeantDirective(f *testing.F) {
	for _, s := range []string{" carillon:cron 0 0 * * *", "Carillon: Cron 0", "ftl cron 5", "carilon:timeout 5", "", ":", "carillon", "\tftl:\tcron\t*"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, text string, inBlock bool) {
		meant, ok := meantDirective(text, inBlock)
		if !ok || strings.ContainsAny(meant, "\r\n") {
			return
		}
		d, isDirective := ast.ParseDirective(0, meant)
		if !isDirective || !slices.Contains(tools, d.Tool) || !slices.Contains(schema.AnnotationNames(), d.Name) {
			t.Errorf("%q was meant as %q", text, meant)
		}
	})
}
