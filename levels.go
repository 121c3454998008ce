package carillon

// demand is what one stream showed since the levels were last set.
type demand struct {
	level    int // what it was granted
	inFlight int // calls of it that have not ended
	peak     int // the most it had in flight since the last look
}

// levels shares capacity among streams: a fair share for each, and what the idle ones leave lent to those that used up
// theirs. An idle stream keeps half its share, so that a herd at an instant meets credits at once. A level is lowered
// at once but raised only as far as the calls already in flight leave room, so the levels of all streams and what still
// runs above a lowered one never exceed the capacity. Only when there are more streams than capacity does each hold
// one credit all the same, and what comes too much is refused: no stream may starve.
func levels(capacity int, streams []demand) []int {
	targets := targets(capacity, streams)
	free := capacity
	for i, s := range streams {
		free -= max(min(targets[i], s.level), s.inFlight)
	}
	out := make([]int, len(streams))
	for i, s := range streams {
		held := max(min(targets[i], s.level), s.inFlight)
		out[i] = min(targets[i], s.level)
		if up := min(targets[i]-held, free); up > 0 {
			out[i] = held + up
			free -= up
		}
		if capacity > 0 {
			out[i] = max(out[i], 1)
		}
	}
	return out
}

// targets is the share that each stream would have if nothing were in flight.
func targets(capacity int, streams []demand) []int {
	n := len(streams)
	out := make([]int, n)
	if n == 0 || capacity <= 0 {
		return out
	}
	fair := capacity / n
	hungry, left := 0, capacity
	for i, s := range streams {
		if s.level == 0 || s.peak >= s.level-s.level/4 {
			hungry++
			continue
		}
		out[i] = min(fair, max(2*s.peak, (fair+1)/2))
		left -= out[i]
	}
	if hungry == 0 || hungry == n { // nobody wants more, or everybody does
		for i := range out {
			out[i] = fair
			if i < capacity%n {
				out[i]++
			}
		}
		return out
	}
	share, extra := left/hungry, left%hungry
	for i, s := range streams {
		if s.level == 0 || s.peak >= s.level-s.level/4 {
			out[i] = share
			if extra > 0 {
				out[i]++
				extra--
			}
		}
	}
	return out
}
