package trigger

import (
	"errors"
	"math"
	"testing"
	"time"
)

func TestConformanceOfPurgeDurations(t *testing.T) {
	type c struct {
		Note     string
		Input    struct{ Duration string }
		Expected struct {
			OK    bool
			Hours float64
		}
	}
	found := cases[c](t, "purge-duration")
	if len(found) != 15 {
		t.Errorf("got %d cases, want 15", len(found))
	}
	for id, c := range found {
		d, err := ParseKeep(c.Input.Duration)
		if !c.Expected.OK {
			if _, ok := errors.AsType[*Fault](err); !ok {
				t.Errorf("%s: %q: %v, %v", id, c.Input.Duration, d, err)
			}
		} else if err != nil || math.Abs(d.Hours()-c.Expected.Hours) > 0.0001 {
			t.Errorf("%s: %q: %v, %v (%s)", id, c.Input.Duration, d, err, c.Note)
		}
	}
}

func TestPurgeDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 14 * day, "0D": 0, "0s": 0, "1M1D": 31 * day, "1Y1h": 365*day + time.Hour, "5M": 150 * day, "5m": 5 * time.Minute,
		"2W30m": 14*day + 30*time.Minute, "1.5h": 90 * time.Minute, "007D": 7 * day, "292Y": 292 * 365 * day, "106751D": 106751 * day,
	} {
		if got, err := ParseKeep(text); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{
		"3w", "2d", "1H", "1.5d", "1.5D", "3 weeks", "3", "0", "00", "3W0", " 3W", "3W ", "3 W", "-1D", "+1D", "1D-1h", "1D+1h", "1D1W", "1D1D", "1D1Y",
		"W", "293Y", "99999999999999999999D", "106752D", "106751D24h", "foo", "3W\x00", "٣W", "1D1",
	} {
		if got, err := ParseKeep(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

// FuzzParseKeep: no text panics, and no accepted one is negative.
func FuzzParseKeep(f *testing.F) {
	for _, text := range []string{"3W", "7Y6M5W4D3h2m1s1ms2us3ns", "292Y", "-1D", "1D1", "0", "9223372036854775807ns"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := ParseKeep(text); d < 0 || err != nil && d != 0 {
			t.Fatalf("%q: %v, %v", text, d, err)
		}
	})
}
