package trigger

import (
	"math"
	"strings"
	"time"
)

// Rules of a purge of ended jobs.
const (
	DefaultKeep = "2W"
	KeepNewest  = 50   // of each worker and state, whatever their age
	PurgeBatch  = 1000 // jobs in one statement
)

// InvalidParameter is the title of a fault in the query of a request.
const InvalidParameter = "Invalid Parameter"

const day = 24 * time.Hour

// keepUnits stand in this order before the units of Go; each may be left out.
var keepUnits = []struct {
	letter byte
	length time.Duration
}{{'Y', 365 * day}, {'M', 30 * day}, {'W', 7 * day}, {'D', day}}

// ParseKeep reads how long jobs are kept: whole years, months, weeks and days (365, 30, 7 and 1 days of 24 hours: Y M W
// D, in this order), then a Go duration: 3W, 2M, 2D12h; 5m are minutes. Nothing is DefaultKeep. The error is a *Fault
// without a pointer.
func ParseKeep(text string) (time.Duration, error) {
	if text == "" {
		text = DefaultKeep
	}
	refused := &Fault{Title: InvalidParameter, Detail: quote(text) + " is no duration to keep jobs (for example 3W, 2M or 2D12h; the units are Y M W D h m s)"}
	rest := text
	var sum time.Duration
	for _, unit := range keepUnits {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if digits == 0 || digits == len(rest) || rest[digits] != unit.letter {
			continue
		}
		n, ok := smallNumber64(rest[:digits], int64((math.MaxInt64-sum)/unit.length))
		if !ok {
			return 0, refused
		}
		sum += time.Duration(n) * unit.length
		rest = rest[digits+1:]
	}
	if rest == "" {
		return sum, nil
	}
	d, err := time.ParseDuration(rest)
	signed := rest[0] == '-' || rest[0] == '+'
	unitless := strings.Trim(rest, "0") == "" // Go takes a bare 0
	if err != nil || signed || unitless || d > math.MaxInt64-sum {
		return 0, refused
	}
	return sum + d, nil
}

// smallNumber64 reads decimal digits of a number that is at most most.
func smallNumber64(digits string, most int64) (n int64, ok bool) {
	for _, c := range []byte(digits) {
		d := int64(c - '0')
		if n > (most-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, n <= most
}
