package schedule

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/cronexpr"
)

// TestNextSkipsNothing looks at every second between an instant and the next slot, or at every day if that is far.
func TestNextSkipsNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 4))
	for range 300 {
		m := makeExpr(r, true)
		s, err := Parse(m.String(), Verb, nil)
		if err != nil {
			t.Fatalf("%q: %v", &m, err)
		}
		from := time.Unix(r.Int64N(4e9), r.Int64N(1e9)).UTC()
		next, ok := s.Next(from)
		if !ok {
			next = from.AddDate(9, 0, 0)
		} else if !m.matches(next) || !next.After(from) {
			t.Fatalf("%q: Next(%v) = %v", &m, from, next)
		}
		if next.Sub(from) > 6*time.Hour {
			day := from.Truncate(24*time.Hour).AddDate(0, 0, 1)
			for ; day.Before(next.Truncate(24 * time.Hour)); day = day.AddDate(0, 0, 1) {
				if m.onDay(day.Month(), day.Day(), day.Weekday()) {
					t.Fatalf("%q: Next(%v) = %v skips %v", &m, from, next, day)
				}
			}
			if !ok {
				continue
			}
			if from = day.Add(-1); next.Sub(from) > 6*time.Hour {
				from = next.Add(-6 * time.Hour)
			}
		}
		for sec := from.Truncate(time.Second).Add(time.Second); sec.Before(next); sec = sec.Add(time.Second) {
			if m.matches(sec) {
				t.Fatalf("%q: Next(%v) = %v skips %v", &m, from, next, sec)
			}
		}
	}
}

// TestNextAgreesWithAnotherLibrary compares in UTC, where the two agree on what an expression means. The peer knows
// no year after 2099.
func TestNextAgreesWithAnotherLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 5))
	compared := 0
	for range 3000 {
		m := makeExpr(r, true)
		if strings.Contains(m.week.text, "0-0") {
			continue // the peer reads it as every day
		}
		s, err := Parse(m.String(), Verb, nil)
		if err != nil {
			t.Fatalf("%q: %v", &m, err)
		}
		peer, err := cronexpr.Parse(m.String() + " *")
		if err != nil {
			t.Fatalf("%q: the peer says %v", &m, err)
		}
		at := time.Unix(r.Int64N(3e9), r.Int64N(2)*500).UTC()
		for range 4 {
			got, ok := s.Next(at)
			want := peer.Next(at)
			if want.IsZero() {
				if ok && got.Year() < 2099 {
					t.Fatalf("%q: after %v got %v, the peer knows none", &m, at, got)
				}
				break
			}
			if !ok || !got.Equal(want) {
				t.Fatalf("%q: after %v got %v %v, the peer says %v", &m, at, got, ok, want)
			}
			at = got
			compared++
		}
	}
	if compared < 5000 {
		t.Errorf("only %d slots compared", compared)
	}
}
