package module

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"

	"carillon/backend/core/schema"
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
)

type Module struct{ Name, Language, Digest, Schema string }

type Verbs map[string]func(context.Context) error

func Main(m Module, verbs Verbs) {
	fmt.Printf("%s %s %d %s\n", m.Name, m.Language, len(m.Digest), m.Schema)
	for name, verb := range verbs {
		fmt.Println(name, verb(context.Background()))
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
		{"a module without verbs", "idle", "sdk", "it has no verbs, put //carillon:cron and a schedule above a function"},
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
}

func TestTheGeneratedSchemaIsTheContracts(t *testing.T) {
	m := schema.Module{Name: "m", Language: schema.Go, Verbs: []schema.Verb{
		{Name: "plain", Request: "Order", Response: schema.Unit},
		{Name: "full", Request: schema.Unit, Response: schema.Unit, Cron: &schema.Cron{
			Schedule: "0 0 * * *", TimeZone: "Europe/Paris", Timeout: 1234567 * time.Microsecond, Catchup: schema.CatchupAll}},
		{Name: "none", Request: schema.Unit, Response: schema.Unit, Cron: &schema.Cron{Schedule: "* * * * *", Timeout: 24 * time.Hour, Catchup: schema.CatchupNone}},
	}}
	text, err := protoJSON(m)
	if err != nil {
		t.Fatal(err)
	}
	var s carillonv1.Schema
	if err := protojson.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	full, none := s.GetVerbs()[1].GetCron(), s.GetVerbs()[2].GetCron()
	if s.GetModule() != "m" || s.GetLanguage() != "go" || s.GetVerbs()[0].GetCron() != nil || s.GetVerbs()[0].GetRequest() != "Order" ||
		full.GetSchedule() != "0 0 * * *" || full.GetTimeZone() != "Europe/Paris" || full.GetTimeout().AsDuration() != 1234567*time.Microsecond ||
		full.GetCatchup() != carillonv1.Catchup_CATCHUP_ALL || full.GetOverlap() != carillonv1.Overlap_OVERLAP_SKIP ||
		none.GetTimeout().AsDuration() != 24*time.Hour || none.GetCatchup() != carillonv1.Catchup_CATCHUP_NONE {
		t.Errorf("got %v", &s)
	}
}

func TestGenerateStaysInItsDirectory(t *testing.T) {
	dir := extract(t, txtar.Parse([]byte(tinySource)))
	src, err := Read(t.Context(), filepath.Join(dir, "u", "internal", "night"))
	if err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	if err := Generate(src, into); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(into, mainFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`verbs "example.com/tiny/internal/night"`, `"shift": verbs.Shift,`, src.Digest, "DO NOT EDIT"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("main.go has no %s:\n%s", want, text)
		}
	}
	overlay, err := os.ReadFile(filepath.Join(into, overlayFile))
	if err != nil {
		t.Fatal(err)
	}
	var o struct{ Replace map[string]string }
	if err := json.Unmarshal(overlay, &o); err != nil || o.Replace[filepath.Join(src.Dir, "carillonrunner", mainFile)] != filepath.Join(into, mainFile) {
		t.Errorf("overlay %s: %v", overlay, err)
	}
}
