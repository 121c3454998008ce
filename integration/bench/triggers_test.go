package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"carillon"
	"carillon/backend/core/trigger"
)

func TestTheRotaFiresAsOftenAsAsked(t *testing.T) {
	created := time.Date(2027, 3, 1, 12, 34, 56, 789_000_000, time.UTC)
	for _, tc := range []struct {
		n        int
		rate     float64
		shortest time.Duration
	}{{100_000, 500, time.Minute}, {100_000, 1500, time.Minute}, {3000, 300, 6 * time.Second}, {1000, 20, 30 * time.Second}} {
		all, err := rota(tc.n, tc.rate, tc.shortest, created)
		if err != nil || len(all) != tc.n {
			t.Errorf("%+v: %d triggers, %v", tc, len(all), err)
			continue
		}
		sum, seen := 0.0, map[string]bool{}
		for i, x := range all {
			sum += 1 / float64(x.step)
			if seen[x.arguments] {
				continue
			}
			seen[x.arguments] = true
			want, err := trigger.Preview(trigger.Kind(x.kind), x.arguments, "", "", created, created, 3)
			got := x.slots(created, created.Add(24*time.Hour).Unix())
			if err != nil || len(want) != 3 || len(got) < 3 || want[0].Unix() != got[0] || want[1].Unix() != got[1] || want[2].Unix() != got[2] {
				t.Fatalf("%+v: trigger %d (%s %s): the oracle says %v, the product %v, %v", tc, i, x.kind, x.arguments, got[:min(len(got), 3)], want, err)
			}
		}
		if sum < tc.rate*0.99 || sum > tc.rate*1.01 {
			t.Errorf("%+v: %.1f firings a second", tc, sum)
		}
	}
	for _, rate := range []float64{100, 2000} {
		if _, err := rota(100_000, rate, time.Minute, created); err == nil {
			t.Errorf("%v firings a second are accepted", rate)
		}
	}
	all, err := rota(100, 0, time.Minute, created)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		next, err := trigger.Preview(trigger.Kind(x.kind), x.arguments, "", "", created, created, 1)
		if err != nil || len(next) != 1 || next[0].Before(created.Add(12*time.Hour)) || len(x.slots(created, next[0].Unix())) > 0 {
			t.Errorf("%s %s fires at %v, %v", x.kind, x.arguments, next, err)
		}
	}
}

func TestEveryEventIsForOneTriggerOrNone(t *testing.T) {
	for _, n := range []int{1, 10, 5000} {
		var entries []trigger.Entry
		for i := range n {
			rules, err := trigger.ParseEvent(rule(i, n))
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, trigger.Entry{ID: int64(i + 1), Tenant: "default", Rules: rules})
		}
		index := (&trigger.Index{}).With(entries)
		c := &crowd{n: n, each: 2}
		matched := 0
		for number := range int64(999) {
			e := c.event(number)
			change := trigger.Change{Tenant: "default", Type: e.GetType(), Verb: trigger.Verb(e.GetVerb()), ID: e.GetDocId(), Doc: e.GetDoc(), Path: e.GetPath()}
			if err := change.Check(); err != nil {
				t.Fatal(err)
			}
			found, _ := index.Match(change, 0, 10)
			matched += len(found)
			if want := number%2 == 0; len(found) > 1 || want != (len(found) == 1) {
				t.Fatalf("event %d of %d triggers: %v match %s", number, n, found, e)
			}
		}
		if want := c.matching(0, 999); matched != want || c.matching(1, 4) != 1 {
			t.Errorf("%d of 999 events match, want %d", matched, want)
		}
	}
}

func TestMarksFindWhatRanTwiceOrElsewhere(t *testing.T) {
	slot := time.Unix(1_800_000_000, 0)
	m := &marks{}
	ring := func(of int64, run carillon.Run) error {
		return m.ring(carillon.WithRun(context.Background(), run), chime{Trigger: of})
	}
	for _, of := range []int64{1, 2, 1} {
		if err := ring(of, carillon.Run{Slot: slot}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ring(1, carillon.Run{}); err == nil {
		t.Error("a run of neither a slot nor an event is accepted")
	}
	all := m.within(slot.Unix(), slot.Unix()+1)
	if len(all) != 3 || doubled(all) != 1 || strange(all) != 0 || len(m.within(0, slot.Unix())) != 0 {
		t.Errorf("marks %+v: %d doubled, %d strange", all, doubled(all), strange(all))
	}
	if strange([]mark{{strange: true}, {}}) != 1 {
		t.Error("a run of another trigger's event is not noticed")
	}
}

func TestListsOfTriggersAreChecked(t *testing.T) {
	for _, args := range [][]string{{"-firings", "many"}, {"-firings", "1"}, {"-firings", "-1"}, {"-event-triggers", "0"}, {"-shortest", "7s"}, {"-shortest", "2m"}, {"-window", "1s"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	o, err := parse([]string{"-only", "triggers,events", "-firings", "0,200", "-event-triggers", "10,20"})
	if err != nil || !slices.Equal(o.firings, []float64{0, 200}) || !slices.Equal(o.eventTriggers, []int{10, 20}) || len((&bench{options: o}).all()) != 0 {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := parse(nil); err != nil || o.measures(clockLeg) || o.measures(eventLeg) || !o.measures(costLeg) {
		t.Errorf("%+v, %v: want the legs of the queue", o, err)
	}
}
