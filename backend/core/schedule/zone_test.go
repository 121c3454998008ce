package schedule

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestLoadLocationTakesNamesOfTheDatabaseOnly(t *testing.T) {
	for _, name := range []string{"", "UTC", "Etc/UTC", "Europe/Paris", "America/Argentina/Ushuaia", "Etc/GMT+5", "EST5EDT"} {
		loc, err := LoadLocation(name)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if again, _ := LoadLocation(name); again != loc {
			t.Errorf("%q gives two pointers", name)
		}
	}
	for _, name := range []string{
		"Local", "localtime", "posixrules", "/etc/passwd", "../UTC", "Europe/../UTC", "Europe//Paris", "Europe/", "./UTC",
		"right/UTC", "posix/UTC", "Mars/Olympus", "Europe\\Paris", "Europe/Par\x00is", "Европа/Париж", "+01:00", " UTC",
		strings.Repeat("a", 1000),
	} {
		if loc, err := LoadLocation(name); err == nil {
			t.Errorf("%q was accepted as %v", name, loc)
		} else if !strings.HasPrefix(err.Error(), "unknown time zone ") || len(err.Error()) > 100 {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestZoneLayoutAgreesWithPackageTime compares offsets at random instants and on both sides of random changes.
func TestZoneLayoutAgreesWithPackageTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 6))
	for _, name := range zoneNames(t) {
		loc := location(t, name)
		z := zoneOf(loc)
		if z == nil {
			continue
		}
		agrees := func(sec int64) {
			t.Helper()
			_, want := time.Unix(sec, 0).In(loc).Zone()
			if got := z.periods[z.at(sec)].offset; got != int64(want) {
				t.Errorf("%s: offset at %v is %d, want %d", name, time.Unix(sec, 0).UTC(), got, want)
			}
		}
		for range 30 {
			agrees(r.Int64N(tableEnd))
			p := &z.periods[r.IntN(len(z.periods))]
			if p.start > tableStart {
				agrees(p.start)
				agrees(p.start - 1)
			}
			if p.next < tableEnd {
				agrees(p.next - 1)
			}
		}
		agrees(tableStart)
		for i := range z.periods {
			p := &z.periods[i]
			if i > 0 && (p.offset == z.periods[i-1].offset || p.start != z.periods[i-1].next || p.peak < z.periods[i-1].peak) {
				t.Errorf("%s: period %d is %+v after %+v", name, i, *p, z.periods[i-1])
			}
		}
	}
}

// TestTwoOverlapsInSuccession: the second ends below the end of the first, which no zone has done since 1970.
func TestTwoOverlapsInSuccession(t *testing.T) {
	z := &zone{hint: make([]uint16, 1)}
	z.add(beforeAll, 0)  // shows ..999
	z.add(1000, -600)    // shows 400..499
	z.add(1100, -500)    // shows 600..
	z.add(100_000, -400) // a gap: 99,500..99,599 are missing
	for _, c := range []struct{ sec, shown int64 }{{999, 999}, {1000, 999}, {1100, 999}, {1499, 999}, {1500, 1000}, {99_999, 99_499}, {100_000, 99_600}} {
		if got := z.shown(c.sec); got != c.shown {
			t.Errorf("shown(%d) = %d, want %d", c.sec, got, c.shown)
		}
	}
	for _, c := range []struct{ l, reached int64 }{{450, 450}, {999, 999}, {1000, 1500}, {99_499, 99_999}, {99_500, 100_000}, {99_600, 100_000}, {99_601, 100_001}} {
		if got := z.reached(c.l); got != c.reached {
			t.Errorf("reached(%d) = %d, want %d", c.l, got, c.reached)
		}
	}
}

func TestChangeWithinDay(t *testing.T) {
	z := zoneOf(location(t, "America/New_York"))
	gap := at(t, "2026-03-08T07:00:00Z").Unix()
	for _, c := range []struct{ from, want int64 }{
		{gap - 1, gap}, {gap - 5000, gap}, {gap - daySeconds + 1, gap}, {gap, gap + daySeconds},
	} {
		if got := z.changeWithinDay(c.from); got != c.want {
			t.Errorf("from %d before the change: got %d, want %d", gap-c.from, got-gap, c.want-gap)
		}
	}
}

func TestZonesWithoutANameOfTheDatabase(t *testing.T) {
	// The name is that of another zone: the location decides, not its name.
	for _, loc := range []*time.Location{
		time.FixedZone("half past", 5*3600+30*60), time.FixedZone("Europe/Paris", -3600), time.FixedZone("UTC", 3600),
	} {
		s, err := Parse("0 12 * * *", Verb, loc)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := s.Next(march2026)
		if got := got.In(loc); !ok || got.Hour() != 12 || got.Minute() != 0 || got.Sub(march2026) > 24*time.Hour {
			t.Errorf("%v: got %v", loc, got)
		}
		if s.Location() != loc {
			t.Errorf("the location of %v became %v", loc, s.Location())
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, name := range []string{"Europe/Madrid", "Asia/Gaza", "Africa/Casablanca"} {
				loc, err := LoadLocation(name)
				if err != nil {
					t.Error(err)
					return
				}
				s, err := Parse("30 2 * * *", Verb, loc)
				if err != nil {
					t.Error(err)
					return
				}
				if _, ok := s.Next(march2026); !ok {
					t.Error("no next slot")
				}
			}
		})
	}
	wg.Wait()
}
