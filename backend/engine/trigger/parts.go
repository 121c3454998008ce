package trigger

import "carillon/backend/core/trigger"

// part is what one statement is to make: so many jobs at most, with so many bytes of documents.
type part struct {
	maxPairs, maxBytes int

	matched      []trigger.Matched
	pairs, bytes int
}

// room is how many triggers of an event fit into a part of its own: at least one.
func (p *part) room(e trigger.Published) int { return max(1, min(p.maxPairs, p.maxBytes/sizeOf(e))) }

// fits says whether the part takes an event with so many triggers, too. An event is not divided between two parts.
func (p *part) fits(e trigger.Published, triggers int) bool {
	return len(p.matched) == 0 || p.pairs+triggers <= p.maxPairs && p.bytes+triggers*sizeOf(e) <= p.maxBytes
}

func (p *part) add(e trigger.Published, m trigger.Matched) {
	p.matched = append(p.matched, m)
	p.pairs, p.bytes = p.pairs+len(m.Triggers), p.bytes+len(m.Triggers)*sizeOf(e)
}

// take empties the part.
func (p *part) take() []trigger.Matched {
	matched := p.matched
	p.matched, p.pairs, p.bytes = nil, 0, 0
	return matched
}

func sizeOf(e trigger.Published) int { return len(e.Doc) + len(e.Old) + 1 }
