package backend

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The floors of the house, from the binary down to the nouns. Imports look down only. The files are read here, in the
// test itself, so that the test cache notices a changed one.
var floors = map[string][]string{
	"binary":  {"cmd/carillon"},
	"bench":   {"backend/bench"},
	"house":   {"backend/controller"},
	"face":    {"backend/face/cozy", "backend/face/rpc"},
	"engine":  {"backend/engine/cluster", "backend/engine/deploy", "backend/engine/dispatch", "backend/engine/queue", "backend/engine/scheduler", "backend/engine/sweep", "backend/engine/trigger"},
	"tool":    {"backend/engine/loop"}, // of engines alone
	"adapter": {"backend/store", "backend/devdb", "backend/module"},
	"noun":    {"backend/core/cron", "backend/core/deployment", "backend/core/job", "backend/core/trigger", "backend/core/permission", "backend/core/ring", "backend/core/schedule", "backend/core/schema"},
	"sdk":     {"."},
	"proto":   {"proto/carillon/v1", "proto/carillon/v1/carillonv1connect"},
	"sql":     {"sql"},
	"kit":     {"backend/devdb/devtest", "backend/store/storetest"}, // imported by tests alone
}

var mayImport = map[string][]string{
	"binary":  {"house", "bench", "noun", "proto", "sdk", "backend/devdb", "backend/module"},
	"bench":   {"house", "engine", "adapter", "noun", "proto", "sdk"},
	"house":   {"face", "engine", "adapter", "noun", "proto"},
	"face":    {"engine", "noun", "proto"},
	"engine":  {"noun", "proto", "tool"},
	"tool":    {},
	"adapter": {"noun", "sql"},
	"noun":    {"noun"},
	"sdk":     {"proto"},
	"proto":   {"proto"},
	"sql":     {},
	"kit":     {"adapter", "noun", "kit"},
}

// only names the rooms that may know a library.
var only = map[string][]string{
	"github.com/jackc/pgx":             {"backend/store", "backend/devdb", "backend/devdb/devtest", "backend/store/storetest", "backend/bench"},
	"github.com/buraksezer/consistent": {"backend/core/ring"},
	"github.com/alecthomas/kong":       {"cmd/carillon"},
	"github.com/testcontainers":        {"backend/devdb/devtest"},
	"net/http":                         {"backend/face/cozy", "backend/face/rpc", "backend/controller", "backend/engine/dispatch", "backend/bench", "cmd/carillon", ".", "proto/carillon/v1/carillonv1connect"},
}

// pure is what a noun may not import: no I/O, no goroutines' tools, no log.
var pure = []string{"context", "net", "os", "log", "io/fs", "sync/errgroup", "database"}

const modulePath = "carillon"

func TestImportsLookDownOnly(t *testing.T) {
	kindOf := map[string]string{}
	for kind, rooms := range floors {
		for _, room := range rooms {
			kindOf[room] = kind
		}
	}
	seen := map[string]bool{}
	visit := func(file string) {
		room := path.Dir(file)
		seen[room] = true
		kind, planned := kindOf[room]
		if !planned {
			t.Errorf("%s: its folder %s stands on no floor", file, room)
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range f.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			judge(t, file, room, kind, name, kindOf)
		}
	}
	walk(t, visit)
	for room := range kindOf {
		if !seen[room] && room != "backend/bench" {
			t.Errorf("%s is on the plan, but not in the tree", room)
		}
	}
}

func judge(t *testing.T, file, room, kind, name string, kindOf map[string]string) {
	for library, rooms := range only {
		if (name == library || strings.HasPrefix(name, library+"/")) && !slices.Contains(rooms, room) {
			t.Errorf("%s (%s) imports %s: only %v may", file, kind, name, rooms)
		}
	}
	if kind == "noun" && slices.ContainsFunc(pure, func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") }) {
		t.Errorf("%s (noun) imports %s: nouns are pure", file, name)
	}
	target, ours := strings.CutPrefix(name, modulePath+"/")
	if name == modulePath {
		target, ours = ".", true
	}
	if !ours || strings.HasPrefix(target, room+"/internal/") {
		return
	}
	to, planned := kindOf[target]
	if !planned {
		t.Errorf("%s imports %s, which stands on no floor", file, name)
		return
	}
	if !slices.Contains(mayImport[kind], to) && !slices.Contains(mayImport[kind], target) {
		t.Errorf("%s (%s) imports %s (%s): imports look down only", file, kind, target, to)
	}
}

// walk visits the Go files of the product, without tests and generated rooms that the compiler guards itself.
func walk(t *testing.T, visit func(file string)) {
	root := ".."
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, _ := filepath.Rel(root, p)
		file = filepath.ToSlash(file)
		if d.IsDir() {
			switch {
			case file == ".":
				return nil
			case d.Name() == "internal", d.Name() == "testdata", strings.HasPrefix(d.Name(), "."), strings.HasPrefix(d.Name(), "_"),
				file == "integration", file == "examples", file == "tools", file == "third_party", file == "deployments", file == "web", file == "bin":
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
			visit(file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
