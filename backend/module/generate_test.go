package module

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"carillon/backend/core/schema"
	carillonv1 "carillon/proto/carillon/v1"
)

func TestTheGeneratedSchemaIsTheContracts(t *testing.T) {
	m := schema.Module{Name: "m", Language: schema.Go, Verbs: []schema.Verb{
		{Name: "plain", Request: "Order", Response: schema.Unit, Timeout: time.Hour + time.Nanosecond, Concurrency: 3,
			Retry: &schema.Retry{Attempts: 5, Backoff: 1500 * time.Millisecond, Ceiling: time.Minute}, Unique: &schema.Unique{Window: time.Hour}},
		{Name: "full", Request: schema.Unit, Response: schema.Unit, Retry: &schema.Retry{Attempts: 2}, Cron: &schema.Cron{
			Schedule: "0 0 * * *", TimeZone: "Europe/Paris", Timeout: 1234567 * time.Microsecond, Catchup: schema.CatchupAll, Overlap: schema.OverlapCancel}},
		{Name: "none", Request: schema.Unit, Response: "[Order]", Unique: &schema.Unique{}},
	}, Data: []schema.Data{{Name: "Order", Fields: []schema.Field{{Name: "lines", Type: "[{String: Int}]?", Optional: true}, {Name: "a b", Type: "Any"}}}}}
	text, err := protoJSON(m)
	if err != nil {
		t.Fatal(err)
	}
	var got carillonv1.Schema
	if err := protojson.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	want := &carillonv1.Schema{Module: "m", Language: "go", Verbs: []*carillonv1.Verb{
		{Name: "plain", Request: "Order", Response: "Unit", Timeout: durationpb.New(time.Hour + time.Nanosecond), Concurrency: 3,
			Retry:  &carillonv1.Retry{Attempts: 5, Backoff: durationpb.New(1500 * time.Millisecond), Ceiling: durationpb.New(time.Minute)},
			Unique: &carillonv1.Unique{Window: durationpb.New(time.Hour)}},
		{Name: "full", Request: "Unit", Response: "Unit", Retry: &carillonv1.Retry{Attempts: 2}, Cron: &carillonv1.Cron{
			Schedule: "0 0 * * *", TimeZone: "Europe/Paris", Timeout: durationpb.New(1234567 * time.Microsecond),
			Catchup: carillonv1.Catchup_CATCHUP_ALL, Overlap: carillonv1.Overlap_OVERLAP_CANCEL}},
		{Name: "none", Request: "Unit", Response: "[Order]", Unique: &carillonv1.Unique{}},
	}, Data: []*carillonv1.Data{{Name: "Order", Fields: []*carillonv1.Field{
		{Name: "lines", Type: "[{String: Int}]?", Optional: true}, {Name: "a b", Type: "Any"}}}}}
	if !proto.Equal(&got, want) {
		t.Errorf("got  %v\nwant %v", &got, want)
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
	for _, want := range []string{`verbs "example.com/tiny/internal/night"`, `"shift": carillon.Plain(verbs.Shift),`, src.Digest, "DO NOT EDIT"} {
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
