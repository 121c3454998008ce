package schedule

import (
	"testing"
	"time"

	"github.com/hashicorp/cronexpr"
)

// Next beside the library that comes closest to the grammar. The peer counts a weekday and a day of month as OR too,
// and takes its zone from the instant. On two cores of an EPYC, go test -bench Next, in ns (the peer in brackets):
//
//	                  UTC          New York
//	every 5 min     8 (111)     13 (1,629)
//	daily           9 (192)     16 (2,719)
//	29 February     27 (382)     37 (2,999)
//	weekday 9-17    10 (4,776)   22 (7,693)
//	Friday 13th     21 (311)     34 (1,978)
//	31 December     18 (200)     30 (650)
//
// Next and Prev do not allocate; the peer does in the last four.
var benchExprs = []struct{ name, expr string }{
	{"every5min", "*/5 * * * *"},
	{"daily", "0 0 * * *"},
	{"feb29", "0 0 29 2 *"},
	{"weekday9to17", "0 9-17 * * 1-5"},
	{"friday13", "0 0 13 * 5"},
	{"dec31", "0 0 31 12 *"},
}

var benchFrom = time.Date(2026, 3, 4, 17, 33, 12, 500, time.UTC)

func BenchmarkNext(b *testing.B) {
	for _, zone := range []string{"UTC", "America/New_York"} {
		loc := location(b, zone)
		for _, c := range benchExprs {
			s, err := Parse(c.expr, Verb, loc)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(zone+"/"+c.name+"/carillon", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					s.Next(benchFrom)
				}
			})
			peer, from := cronexpr.MustParse(c.expr), benchFrom.In(loc)
			b.Run(zone+"/"+c.name+"/cronexpr", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					peer.Next(from)
				}
			})
		}
	}
}

func BenchmarkPrev(b *testing.B) {
	for _, zone := range []string{"UTC", "America/New_York"} {
		for _, c := range benchExprs {
			s, err := Parse(c.expr, Verb, location(b, zone))
			if err != nil {
				b.Fatal(err)
			}
			b.Run(zone+"/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					s.Prev(benchFrom)
				}
			})
		}
	}
}

func BenchmarkParse(b *testing.B) {
	loc := location(b, "America/New_York")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("0 9-17 * * 1-5", Verb, loc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewZone(b *testing.B) {
	loc := location(b, "America/New_York")
	b.ReportAllocs()
	for b.Loop() {
		newZone(loc)
	}
}
