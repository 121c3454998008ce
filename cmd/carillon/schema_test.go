package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"carillon/backend/core/schema"
	carillonv1 "carillon/proto/carillon/v1"
)

func TestSchemaShowsTypesAndJobOptions(t *testing.T) {
	code, stdout, stderr := carillon(t, "schema", "../../examples/mailroom")
	if want := "verb sendMail(Mail) Receipt\n  +timeout 30s\n  +retry 5 1s..1m\n"; code != 0 || !strings.Contains(stdout, want) ||
		!strings.Contains(stdout, "data Mail {\n  to String\n  subject String\n  body? String\n}\n") {
		t.Errorf("code %d, stderr %q, schema\n%s\nlacks %q or its type", code, stderr, stdout, want)
	}
	if _, _, err := schema.Parse("", stdout); err != nil {
		t.Errorf("what is printed cannot be read: %v", err)
	}
	code, stdout, stderr = carillon(t, "schema", "../../examples/mailroom", "-o", "json")
	var got carillonv1.Schema
	if err := protojson.Unmarshal([]byte(stdout), &got); code != 0 || err != nil {
		t.Fatalf("code %d, %v, %s", code, err, stderr)
	}
	if len(got.GetData()) == 0 || got.GetVerbs()[0].GetRetry().GetCeiling().AsDuration() != time.Minute {
		t.Errorf("schema %v", &got)
	}
}

func TestCheckShowsTheFaultsOfVerbsWithARequest(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module shop\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "shop.go"), "package shop\n\nimport \"context\"\n\ntype Order struct{ Done chan bool }\n\n//carillon:verb\n//carillon:retry forever\nfunc Place(ctx context.Context, o Order) error { return nil }\n")
	code, _, stderr := carillon(t, "check", dir)
	for _, want := range []string{"shop.go:5:20: a channel can not travel as JSON", "shop.go:8:18: verb place: invalid retry \"forever\"", "has to end", "2 faults"} {
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("code %d, stderr %q lacks %q", code, stderr, want)
		}
	}
}

func TestCheckReadsAllModulesBelow(t *testing.T) {
	dir := t.TempDir()
	for name, expr := range map[string]string{"day": "0 0 * * *", "night": "0 25 * * *"} {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(at, "go.mod"), "module "+name+"\n\ngo 1.26\n")
		write(t, filepath.Join(at, "v.go"), "package "+name+"\n\nimport \"context\"\n\n//carillon:cron "+expr+"\nfunc Ring(ctx context.Context) error { return nil }\n")
	}
	write(t, filepath.Join(dir, "Old.kt"), "package com.old\n\n@Cron(\"0 0 * * *\")\nfun old() {}\n")
	code, stdout, stderr := carillon(t, "check", dir)
	if code != 1 || !strings.Contains(stdout, "day: module day, 1 verb: ok") || !strings.Contains(stdout, "module old, 1 verb: ok") || !strings.Contains(stderr, "night/v.go:5:19: ") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestTheSchemaTravelsWhole(t *testing.T) {
	got := schemaProto(schema.Module{Name: "m", Verbs: []schema.Verb{
		{Name: "a", Request: "T", Timeout: time.Minute, Concurrency: 3, Retry: &schema.Retry{Attempts: 2, Backoff: time.Second, Ceiling: time.Hour}, Unique: &schema.Unique{Window: time.Hour}},
		{Name: "b", Cron: &schema.Cron{Schedule: "0 0 * * *", TimeZone: "UTC", Timeout: time.Second, Catchup: schema.CatchupNone, Overlap: schema.OverlapQueue}, Retry: &schema.Retry{}, Unique: &schema.Unique{}},
	}, Data: []schema.Data{{Name: "T", Fields: []schema.Field{{Name: "x", Type: "[Int]?", Optional: true}}}}})
	want := &carillonv1.Schema{Module: "m", Language: "go", Verbs: []*carillonv1.Verb{
		{Name: "a", Request: "T", Response: "Unit", Timeout: durationpb.New(time.Minute), Concurrency: 3,
			Retry:  &carillonv1.Retry{Attempts: 2, Backoff: durationpb.New(time.Second), Ceiling: durationpb.New(time.Hour)},
			Unique: &carillonv1.Unique{Window: durationpb.New(time.Hour)}},
		{Name: "b", Request: "Unit", Response: "Unit", Retry: &carillonv1.Retry{}, Unique: &carillonv1.Unique{}, Cron: &carillonv1.Cron{
			Schedule: "0 0 * * *", TimeZone: "UTC", Timeout: durationpb.New(time.Second), Catchup: carillonv1.Catchup_CATCHUP_NONE, Overlap: carillonv1.Overlap_OVERLAP_QUEUE}},
	}, Data: []*carillonv1.Data{{Name: "T", Fields: []*carillonv1.Field{{Name: "x", Type: "[Int]?", Optional: true}}}}}
	if !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
