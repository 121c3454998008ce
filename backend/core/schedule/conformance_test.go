package schedule

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	_ "time/tzdata" // the rules of the Go release, should the machine have none
)

// TestMain makes package time prefer the zone data of the Go release to that of the machine.
func TestMain(m *testing.M) {
	file := filepath.Join(runtime.GOROOT(), "lib", "time", "zoneinfo.zip")
	if _, err := os.Stat(file); err == nil {
		os.Setenv("ZONEINFO", file)
	}
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	data, err := os.ReadFile("testdata/cron.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		ID, Dialect, Expr, TZ string
		From                  time.Time
		Next                  []time.Time
		Exhausted, Error      bool
		Why                   string
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 167 {
		t.Errorf("got %d cases, want 167", len(cases))
	}
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			d, err := ParseDialect(c.Dialect)
			if err != nil {
				t.Fatal(err)
			}
			s, err := ParseAt(c.Expr, d, location(t, c.TZ), c.From)
			if c.Error {
				if err == nil {
					t.Errorf("%q was accepted (%s)", c.Expr, c.Why)
				}
				return
			}
			if err != nil {
				t.Fatalf("%q: %v (%s)", c.Expr, err, c.Why)
			}
			walked := c.From
			for i, want := range c.Next {
				var ok bool
				if walked, ok = s.Next(walked); !ok || !walked.Equal(want) {
					t.Fatalf("%q: walk %d gave %v %v, want %v (%s)", c.Expr, i, walked, ok, want, c.Why)
				}
				if i+1 < len(c.Next) {
					if got, ok := s.Next(want); !ok || !got.Equal(c.Next[i+1]) {
						t.Fatalf("%q: after %v got %v %v, want %v (%s)", c.Expr, want, got, ok, c.Next[i+1], c.Why)
					}
				}
				if got, ok := s.PrevOrAt(want); !ok || !got.Equal(want) {
					t.Errorf("%q: PrevOrAt(%v) = %v %v", c.Expr, want, got, ok)
				}
				if i > 0 {
					if got, ok := s.Prev(want); !ok || !got.Equal(c.Next[i-1]) {
						t.Errorf("%q: Prev(%v) = %v %v, want %v", c.Expr, want, got, ok, c.Next[i-1])
					}
				}
			}
			if got, ok := s.Next(walked); ok && c.Exhausted {
				t.Errorf("%q: after the last one got %v", c.Expr, got)
			}
		})
	}
}

func location(tb testing.TB, name string) *time.Location {
	tb.Helper()
	loc, err := LoadLocation(name)
	if err != nil {
		tb.Fatal(err)
	}
	return loc
}
