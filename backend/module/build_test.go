package module

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"

	carillonv1 "carillon/proto/carillon/v1"
)

// fakeSDK has the shape of the SDK and no dependencies: its Main prints what it was given and calls every verb once.
const fakeSDK = `
-- sdk/go.mod --
module carillon

go 1.26.0
-- sdk/carillon.go --
package carillon

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

type Module struct{ Name, Language, Digest, Schema string }

type Handler func(context.Context, []byte) ([]byte, error)

type Verbs map[string]Handler

type Unit struct{}

func Plain(fn func(context.Context) error) Handler {
	return func(ctx context.Context, _ []byte) ([]byte, error) { return nil, fn(ctx) }
}

func Takes[Q any](fn func(context.Context, Q) error) Handler {
	return func(ctx context.Context, _ []byte) ([]byte, error) { return nil, fn(ctx, *new(Q)) }
}

func Gives[R any](fn func(context.Context) (R, error)) Handler {
	return func(ctx context.Context, _ []byte) ([]byte, error) {
		r, err := fn(ctx)
		return fmt.Appendf(nil, "%v", r), err
	}
}

func Func[Q, R any](fn func(context.Context, Q) (R, error)) Handler {
	return func(ctx context.Context, _ []byte) ([]byte, error) {
		r, err := fn(ctx, *new(Q))
		return fmt.Appendf(nil, "%v", r), err
	}
}

func Main(m Module, verbs Verbs) {
	fmt.Printf("%s %s %d %s\n", m.Name, m.Language, len(m.Digest), m.Schema)
	for _, name := range slices.Sorted(maps.Keys(verbs)) {
		out, err := verbs[name](context.Background(), nil)
		fmt.Printf("%s %s%v\n", name, out, err)
	}
}
`

const tinySource = `
-- u/go.mod --
module example.com/tiny

go 1.21
-- u/internal/night/night.go --
// Package night is internal, has loops of before Go 1.22, and writes nothing but what it says.
package night

import (
	"context"
	"fmt"
)

//carillon:cron 0 0 * * *
func Shift(ctx context.Context) error {
	var fs []func() int
	for i := 0; i < 3; i++ {
		fs = append(fs, func() int { return i })
	}
	return fmt.Errorf("the loop ends at %d", fs[0]())
}
`

// withSDK extracts a source beside the fake SDK and makes Build use that.
func withSDK(t *testing.T, source string) string {
	t.Helper()
	dir := extract(t, txtar.Parse([]byte(fakeSDK+source)))
	t.Setenv("CARILLON_SDK", filepath.Join(dir, "sdk"))
	t.Setenv("GOPROXY", "off") // what is not in the module cache is not needed
	return dir
}

// build builds dir and returns what the binary prints.
func build(t *testing.T, dir string) (Source, string, string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "runner")
	var said bytes.Buffer
	src, err := Build(t.Context(), dir, out, &said)
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	printed, err := exec.CommandContext(t.Context(), out, "schema").CombinedOutput()
	if err != nil {
		t.Fatalf("run the runner: %v\n%s", err, printed)
	}
	return src, out, string(printed)
}

func TestAModuleThatKnowsNothingOfTheSDKBuildsWithoutATrace(t *testing.T) {
	dir := withSDK(t, tinySource)
	before := snapshot(t, dir)
	src, out, printed := build(t, filepath.Join(dir, "u", "internal", "night"))
	want := `night go 64 {"language":"go","module":"night","verbs":[{"name":"shift","request":"Unit","response":"Unit",` +
		`"cron":{"schedule":"0 0 * * *","catchup":"CATCHUP_LAST","overlap":"OVERLAP_SKIP"}}]}
shift the loop ends at 3
`
	if printed != want {
		t.Errorf("the runner prints:\n%s\nwant:\n%s", printed, want)
	}
	if d := cmp.Diff(before, snapshot(t, dir)); d != "" {
		t.Errorf("the build changed the tree (-before +after):\n%s", d)
	}
	if src.Funcs["shift"] != "Shift" || len(src.Digest) != 64 {
		t.Errorf("source: %+v", src)
	}

	info, err := buildinfo.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["CGO_ENABLED"] != "0" || settings["-trimpath"] != "true" {
		t.Errorf("not static and trimmed: %v", settings)
	}

	// The same code in another directory gives the same binary.
	other := withSDK(t, tinySource)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(other, "u", "internal", "night"), link); err != nil {
		t.Fatal(err)
	}
	_, again, _ := build(t, link)
	if hashOf(t, out) != hashOf(t, again) {
		t.Error("the same code gives another binary in another directory")
	}
}

func hashOf(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(text)
}

func TestAModuleInAWorkspaceKeepsItsNeighbours(t *testing.T) {
	dir := withSDK(t, `
-- w/go.work --
go 1.24

use (
	./u
	./lib
)

replace example.com/far v1.0.0 => ./far
-- w/u/go.mod --
module example.com/u

go 1.24

require example.com/far v1.0.0
-- w/u/u.go --
package u

import (
	"context"
	"errors"

	"example.com/far"
	"example.com/lib"
)

//carillon:cron 0 0 * * *
func Job(context.Context) error { return errors.New(lib.Name + far.Name) }
-- w/lib/go.mod --
module example.com/lib

go 1.23
-- w/lib/lib.go --
package lib

const Name = "lib"
-- w/far/go.mod --
module example.com/far

go 1.24
-- w/far/far.go --
package far

const Name = "far"
`)
	before := snapshot(t, dir)
	src, _, printed := build(t, filepath.Join(dir, "w", "u"))
	if !strings.HasSuffix(printed, "job libfar\n") {
		t.Errorf("the runner prints:\n%s", printed)
	}
	if d := cmp.Diff(before, snapshot(t, dir)); d != "" {
		t.Errorf("the build changed the tree (-before +after):\n%s", d)
	}
	appendTo(t, filepath.Join(dir, "w", "lib", "lib.go"), "\n// more\n")
	if changed, err := Read(t.Context(), src.Dir); err != nil || changed.Digest == src.Digest {
		t.Errorf("a change of a neighbour gives digest %s, as before; %v", changed.Digest, err)
	}
}

func TestAModuleMayImportTheSDKItself(t *testing.T) {
	dir := withSDK(t, `
-- u/go.mod --
module example.com/u

go 1.26.0

require carillon v0.0.0

replace carillon => ../sdk
-- u/u.go --
package u

import (
	"context"
	"fmt"

	"carillon"
)

//carillon:cron 0 0 * * *
func Job(context.Context) error { return fmt.Errorf("%T", carillon.Module{}) }
`)
	if _, _, printed := build(t, filepath.Join(dir, "u")); !strings.HasSuffix(printed, "job carillon.Module\n") {
		t.Errorf("the runner prints:\n%s", printed)
	}
}

func TestVerbsAreServedByTheirSignature(t *testing.T) {
	dir := withSDK(t, `
-- u/go.mod --
module example.com/u

go 1.26.0

require carillon v0.0.0

replace carillon => ../sdk
-- u/u.go --
package u

import (
	"context"

	"carillon"
)

type mail struct{ To string }

//carillon:verb
func A(context.Context) error { return nil }

//carillon:verb
func B(ctx context.Context, m mail) error { return nil }

//carillon:verb
func C(context.Context) (int, error) { return 7, nil }

//carillon:verb
func D(ctx context.Context, m *mail) (map[string]mail, error) { return map[string]mail{"x": {"y"}}, nil }

//carillon:verb
func E(ctx context.Context, _ carillon.Unit) (carillon.Unit, error) { return carillon.Unit{}, nil }
`)
	src, _, printed := build(t, filepath.Join(dir, "u"))
	if !strings.HasSuffix(printed, "a <nil>\nb <nil>\nc 7<nil>\nd map[x:{y}]<nil>\ne {}<nil>\n") {
		t.Errorf("the runner prints:\n%s", printed)
	}
	want := "module u\nverb a(Unit) Unit\nverb b(mail) Unit\nverb c(Unit) Int\nverb d(mail?) {String: mail}?\nverb e(Unit) Unit\n" +
		"data mail {\n  To String\n}\n"
	if d := cmp.Diff(want, src.Module.Text()); d != "" {
		t.Errorf("schema (-want +got):\n%s", d)
	}
}

func TestBuildRefusesClearly(t *testing.T) {
	dir := withSDK(t, `
-- kotlin/job.kt --
@Cron("0 0 * * *") fun job() {}
-- idle/go.mod --
module example.com/idle

go 1.24
-- idle/idle.go --
package idle
-- u/go.mod --
module example.com/u

go 1.24
-- u/u.go --
package u

import "context"

//carillon:cron 0 0 * * *
func Job(context.Context) error { return nil }
`)
	tests := []struct{ name, dir, sdk, want string }{
		{"a Kotlin module", "kotlin", "sdk", "a kotlin module has a runner of its own"},
		{"a module without verbs", "idle", "sdk", "it has no verbs, put //carillon:verb, or //carillon:cron and a schedule, above a function"},
		{"an SDK that is none", "u", "u", "is no checkout of Carillon"},
		{"an SDK that is not there", "u", "gone", "is no checkout of Carillon"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("CARILLON_SDK", filepath.Join(dir, tt.sdk))
			out := filepath.Join(t.TempDir(), "runner")
			_, err := Build(t.Context(), filepath.Join(dir, tt.dir), out, os.Stderr)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want ..%s..", err, tt.want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("there is a binary")
			}
		})
	}
}

// TestRunnersOnTheRealSDK builds one module of this repository and one outside of it, with what go.sum already pins.
func TestRunnersOnTheRealSDK(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	t.Setenv("CARILLON_SDK", "")
	outside := filepath.Join(extract(t, txtar.Parse([]byte(tinySource))), "u", "internal", "night")
	for _, dir := range []string{"../../examples/heartbeat", outside} {
		src, _, printed := build(t, dir)
		var got carillonv1.Schema
		if err := protojson.Unmarshal([]byte(printed), &got); err != nil {
			t.Fatalf("%s: the schema is not the contract's: %v\n%s", dir, err, printed)
		}
		if got.GetModule() != src.Module.Name || len(got.GetVerbs()) != 1 || got.GetVerbs()[0].GetCron().GetSchedule() != src.Module.Verbs[0].Cron.Schedule {
			t.Errorf("%s: the runner says %v", dir, &got)
		}
	}
	src, _, printed := build(t, "../../examples/mailroom")
	var got carillonv1.Schema
	if err := protojson.Unmarshal([]byte(printed), &got); err != nil {
		t.Fatalf("the schema is not the contract's: %v\n%s", err, printed)
	}
	if len(got.GetVerbs()) != len(src.Module.Verbs) || len(got.GetData()) != len(src.Module.Data) || got.GetVerbs()[0].GetRequest() != "Mail" {
		t.Errorf("the runner of verbs with requests says %v", &got)
	}
}
