package heartbeat

import "testing"

func TestBeatCounts(t *testing.T) {
	before := beats.Load()
	for range 3 {
		if err := Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := beats.Load() - before; got != 3 {
		t.Errorf("%d beats of 3 are counted", got)
	}
}
