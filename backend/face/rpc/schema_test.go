package rpc

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"carillon/backend/core/schema"
	carillonv1 "carillon/proto/carillon/v1"
)

func TestASchemaArrivesWhole(t *testing.T) {
	got, err := fromSchema(&carillonv1.Schema{Module: "post", Language: "go", Verbs: []*carillonv1.Verb{
		{Name: "send", Request: "Mail", Response: "[Mail]?", Timeout: durationpb.New(time.Minute), Concurrency: 7,
			Retry:  &carillonv1.Retry{Attempts: 5, Backoff: durationpb.New(time.Second), Ceiling: durationpb.New(time.Hour)},
			Unique: &carillonv1.Unique{Window: durationpb.New(time.Hour)}},
		{Name: "idle", Retry: &carillonv1.Retry{}, Unique: &carillonv1.Unique{}},
		{Name: "nightly", Retry: &carillonv1.Retry{Attempts: 2}, Cron: &carillonv1.Cron{
			Schedule: "0 0 * * *", TimeZone: "Europe/Paris", Timeout: durationpb.New(time.Hour),
			Catchup: carillonv1.Catchup_CATCHUP_ALL, Overlap: carillonv1.Overlap_OVERLAP_CANCEL}},
	}, Data: []*carillonv1.Data{{Name: "Mail", Fields: []*carillonv1.Field{{Name: "to", Type: "String"}, {Name: "subject", Type: "String?", Optional: true}}}, {Name: "Empty"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := schema.Module{Name: "post", Language: "go", Verbs: []schema.Verb{
		{Name: "send", Request: "Mail", Response: "[Mail]?", Timeout: time.Minute, Concurrency: 7,
			Retry: &schema.Retry{Attempts: 5, Backoff: time.Second, Ceiling: time.Hour}, Unique: &schema.Unique{Window: time.Hour}},
		{Name: "idle", Request: schema.Unit, Response: schema.Unit, Retry: &schema.Retry{}, Unique: &schema.Unique{}},
		{Name: "nightly", Request: schema.Unit, Response: schema.Unit, Retry: &schema.Retry{Attempts: 2}, Cron: &schema.Cron{
			Schedule: "0 0 * * *", TimeZone: "Europe/Paris", Timeout: time.Hour, Catchup: schema.CatchupAll, Overlap: schema.OverlapCancel}},
	}, Data: []schema.Data{{Name: "Mail", Fields: []schema.Field{{Name: "to", Type: "String"}, {Name: "subject", Type: "String?", Optional: true}}}, {Name: "Empty"}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if es := schema.Validate(got, time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)); es != nil {
		t.Error(es)
	}
}

func TestEveryPolicyOfTheContractIsKnown(t *testing.T) {
	for n, name := range carillonv1.Overlap_name {
		if _, ok := overlaps[carillonv1.Overlap(n)]; !ok {
			t.Errorf("%s would be taken for skip", name)
		}
	}
	for n, name := range carillonv1.Catchup_name {
		if _, ok := catchups[carillonv1.Catchup(n)]; !ok {
			t.Errorf("%s would be taken for last", name)
		}
	}
}

func TestABadDurationIsNamed(t *testing.T) {
	bad := &durationpb.Duration{Seconds: 1, Nanos: -1}
	for field, verb := range map[string]*carillonv1.Verb{
		"schema.verbs[1].timeout":       {Timeout: bad},
		"schema.verbs[1].cron.timeout":  {Cron: &carillonv1.Cron{Timeout: bad}},
		"schema.verbs[1].retry.backoff": {Retry: &carillonv1.Retry{Backoff: bad}},
		"schema.verbs[1].retry.ceiling": {Retry: &carillonv1.Retry{Ceiling: bad}},
		"schema.verbs[1].unique.window": {Unique: &carillonv1.Unique{Window: bad}},
	} {
		_, err := fromSchema(&carillonv1.Schema{Verbs: []*carillonv1.Verb{{}, verb}})
		if f := (*fault)(nil); !errors.As(err, &f) || f.field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
