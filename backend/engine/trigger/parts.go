package trigger

import (
	"slices"

	"carillon/backend/core/trigger"
)

// parts cuts what events are to become into what one statement makes: so many jobs, with so many bytes of documents at most.
// An event with more triggers than that is made of in several statements, one after the other; the last one removes it.
func parts(events []trigger.Published, found [][]int64, maxPairs, maxBytes int) [][]trigger.Matched {
	var out [][]trigger.Matched
	var part []trigger.Matched
	pairs, bytes := 0, 0
	flush := func() {
		if len(part) > 0 {
			out = append(out, part)
		}
		part, pairs, bytes = nil, 0, 0
	}
	for i, e := range events {
		size := len(e.Doc) + len(e.Old) + 1
		at, _ := slices.BinarySearch(found[i], e.Upto+1)
		rest, after := found[i][at:], e.Upto
		for {
			room := min(maxPairs-pairs, (maxBytes-bytes)/size)
			if len(rest) > room && len(part) > 0 {
				flush() // an event begins in a part of its own rather than being cut, and each further part of it is one
				continue
			}
			n := min(max(room, 1), len(rest))
			m := trigger.Matched{Event: e.ID, After: after, Triggers: rest[:n]}
			rest = rest[n:]
			if len(rest) > 0 {
				after = m.Triggers[n-1]
				m.Upto = after
			}
			part, pairs, bytes = append(part, m), pairs+n, bytes+n*size
			if len(rest) == 0 {
				break
			}
		}
	}
	flush()
	return out
}
