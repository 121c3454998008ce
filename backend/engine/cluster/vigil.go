package cluster

import "time"

// vigil decides, over plain values, when silence becomes dangerous. Its times are local; what it compares them with is
// handed in. Only the goroutine that beats touches it.
type vigil struct {
	beat, silence, fence, lease time.Duration

	lastGood time.Time // sending of the last good beat; zero: none yet
	alone    bool      // the last good beat showed no other member, so nobody can sweep
	spared   time.Time // when the others were last asked and all said that their beats fail too; zero: not in this silence
	fenced   bool
}

// due is when the others must be asked next whether their beats fail too. Not at all while nothing can be lost: before
// the first good beat, alone, or when the calls were given up already.
func (v *vigil) due() (time.Time, bool) {
	if v.lastGood.IsZero() || v.alone || v.fenced {
		return time.Time{}, false
	}
	if v.spared.IsZero() {
		return v.lastGood.Add(v.fence), true
	}
	return v.spared.Add(v.beat), true // Postgres may have come back for one of them since
}

// judge takes the answer to a question asked at `asked` and says whether to fence now. The answer is void when a beat
// succeeded meanwhile.
func (v *vigil) judge(asked, now time.Time, everybody bool) (fence bool) {
	if v.fenced || now.Sub(v.lastGood) < v.fence {
		return false
	}
	if everybody {
		v.spared = asked
		return false
	}
	v.fenced = true
	return true
}

// good takes a beat that succeeded. healed: the silence before it was long enough that others may have acted. late: it
// was so long that runs may have been swept, and no question was answered in time to rule that out; so it is when the
// whole process stood still.
func (v *vigil) good(sent, now time.Time, others int) (late, healed bool) {
	if !v.lastGood.IsZero() {
		gap := now.Sub(v.lastGood)
		// Whoever said that its beats fail had been silent itself, and may not sweep within a lease of its return.
		covered := !v.spared.IsZero() && now.Sub(v.spared) < v.lease
		late = gap > v.lease && !v.alone && !v.fenced && !covered
		healed = gap > v.silence
	}
	v.lastGood, v.alone, v.spared, v.fenced = sent, others == 0, time.Time{}, false
	return late, healed
}
