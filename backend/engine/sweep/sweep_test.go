package sweep

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
)

// table is a store whose scan finds what the test put there, and remembers when it was asked for what.
type table struct {
	mu       sync.Mutex
	start    time.Time
	unswept  int
	overdue  []int64
	mine     []cron.Run
	stuck    []cron.Run
	fail     map[string]error
	hang     bool // the partitions wait for a lock
	said     map[string][]time.Duration
	swept    [][]cron.Run
	ended    []cron.End
	accepted func(cron.End) cron.Ended
}

func newTable() *table {
	return &table{start: time.Now(), fail: map[string]error{}, said: map[string][]time.Duration{},
		accepted: func(e cron.End) cron.Ended { return cron.Ended{JobID: e.JobID, RunID: e.RunID, Accepted: true} }}
}

func (t *table) say(what string) error {
	t.said[what] = append(t.said[what], time.Since(t.start))
	return t.fail[what]
}

func (t *table) Unswept(context.Context) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unswept, t.say("unswept")
}

func (t *table) Scan(context.Context) ([]int64, []cron.Run, []cron.Run, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.overdue, t.mine, t.stuck, t.say("scan")
}

func (t *table) Sweep(_ context.Context, stuck []cron.Run) ([]cron.Run, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.say("sweep"); err != nil {
		return nil, err
	}
	t.swept = append(t.swept, stuck)
	var freed []cron.Run
	for _, r := range stuck {
		if r.Controller != "alive" { // the statement's own check: this one beat in the meantime
			r.Verdict = cron.Lost
			if r.Controller == "late" {
				r.Verdict = cron.TimedOut
			}
			freed = append(freed, r)
		}
	}
	t.stuck = nil
	return freed, nil
}

func (t *table) Retire(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.say("retire")
}

func (t *table) EndCronJobs(_ context.Context, ends []cron.End) (ended []cron.Ended, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.say("end"); err != nil {
		return nil, err
	}
	t.ended = append(t.ended, ends...)
	t.mine = nil
	for _, e := range ends {
		ended = append(ended, t.accepted(e))
	}
	return ended, nil
}

func (t *table) Partitions(ctx context.Context, ahead, keep int) error {
	t.mu.Lock()
	err, hang := t.say("partitions"), t.hang
	t.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if ahead != 7 || keep != 30 {
		return errors.New("partitions for other days")
	}
	return err
}

func (t *table) Forget(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.say("forget")
}

func (t *table) set(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
}

func (t *table) times(what string) []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.said[what]
}

// started runs a sweeper on the table; all that it freed and passed on is collected.
type started struct {
	*Sweeper
	mu      sync.Mutex
	known   map[cron.RunID]bool
	freed   []cron.Run
	overdue []int64
}

func start(t *testing.T, on *table) *started {
	s := &started{known: map[cron.RunID]bool{}}
	var err error
	s.Sweeper, err = New(Config{
		Known: func(id cron.RunID) bool { s.mu.Lock(); defer s.mu.Unlock(); return s.known[id] },
		Freed: func(runs []cron.Run) { s.mu.Lock(); defer s.mu.Unlock(); s.freed = append(s.freed, runs...) },
		Overdue: func(ids []int64) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.overdue = append(s.overdue, ids...)
		},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, on, on)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run ended with %v, want nil", err)
		}
	})
	return s
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func run(n byte, controller string) cron.Run {
	return cron.Run{ID: cron.RunID{n}, JobID: int64(n), Ref: "m.v", Slot: time.Unix(int64(n), 0).UTC(), Controller: controller}
}

func TestScansEveryFewSecondsWhileAllBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		s := start(t, db)
		pass(10 * time.Minute)
		if n := len(db.times("unswept")); n < 500 || n > 750 {
			t.Errorf("%d passes in 10 min, want one a second, jittered", n)
		}
		scans := db.times("scan")
		if scans[0] > 2*time.Second {
			t.Errorf("first scan after %s", scans[0])
		}
		apart := map[time.Duration]bool{}
		for i, at := range scans[1:] {
			d := at - scans[i]
			apart[d] = true
			if d < 4*time.Second || d > 7200*time.Millisecond {
				t.Errorf("%s between two scans, want about 5 s", d)
			}
		}
		if len(apart) < 10 {
			t.Errorf("only %d different pauses: no jitter", len(apart))
		}
		if got := s.Stats(); got.Scans != int64(len(scans)) || got.FailedPasses != 0 {
			t.Errorf("stats %+v after %d scans", got, len(scans))
		}
	})
}

func TestRunsOfADeadControllerAreFreedWithinAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		s := start(t, db)
		pass(3 * time.Second)
		db.set(func() {
			db.unswept, db.stuck = 1, []cron.Run{run(1, "dead"), run(2, "late"), run(3, "alive")}
		})
		pass(1201 * time.Millisecond)
		var got []string
		s.mu.Lock()
		for _, r := range s.freed {
			got = append(got, r.Controller+" "+string(r.Verdict))
		}
		s.mu.Unlock()
		if want := []string{"dead lost", "late timed_out"}; !reflect.DeepEqual(got, want) {
			t.Errorf("freed %q, want %q: only what the statement returned", got, want)
		}
		if n := len(db.times("retire")); n < 1 || n > 2 { // a jittered second holds one pass or two
			t.Errorf("retired %d times, want once with every pass that finds somebody unswept", n)
		}
		if st := s.Stats(); st.Lost != 1 || st.TimedOut != 1 || st.Unswept != 1 {
			t.Errorf("stats %+v", st)
		}
		pass(5 * time.Second) // not retired yet: it scans with every pass
		if n := len(db.times("scan")); n < 5 {
			t.Errorf("%d scans while a controller is unswept, want one a second", n)
		}
	})
}

func TestASweepIsCutIntoBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		db.stuck = make([]cron.Run, 2500)
		s := start(t, db)
		pass(2 * time.Second)
		var sizes []int
		for _, b := range db.swept {
			sizes = append(sizes, len(b))
		}
		if want := []int{1000, 1000, 500}; !reflect.DeepEqual(sizes, want) {
			t.Errorf("statements of %v, want %v", sizes, want)
		}
		if len(s.freed) != 2500 {
			t.Errorf("freed %d, want 2500", len(s.freed))
		}
	})
}

func TestOverdueRowsArePassedOnEvenIfTheSweepFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		db.overdue, db.stuck, db.fail["sweep"] = []int64{7, 8}, []cron.Run{run(1, "dead")}, errors.New("deadlock detected")
		s := start(t, db)
		pass(1300 * time.Millisecond)
		s.mu.Lock()
		if want := []int64{7, 8}; !reflect.DeepEqual(s.overdue, want) {
			t.Errorf("passed on %v, want %v", s.overdue, want)
		}
		s.mu.Unlock()
		db.set(func() { clear(db.fail) })
		pass(1300 * time.Millisecond) // a failed scan is repeated with the next pass, not 5 s later
		if len(s.freed) != 1 || s.Stats().FailedPasses == 0 {
			t.Errorf("freed %d after the database recovered, stats %+v", len(s.freed), s.Stats())
		}
	})
}

func TestAPassThatFailsIsTriedAgain(t *testing.T) {
	for _, what := range []string{"unswept", "scan", "retire"} {
		synctest.Test(t, func(t *testing.T) {
			db := newTable()
			db.unswept, db.fail[what] = 1, errors.New("connection refused")
			s := start(t, db)
			pass(5 * time.Second)
			db.set(func() {
				clear(db.fail)
				db.stuck = []cron.Run{run(1, "dead")}
			})
			pass(1300 * time.Millisecond)
			if len(s.freed) != 1 || s.Stats().FailedPasses < 3 {
				t.Errorf("%s failed: freed %d afterwards, stats %+v", what, len(s.freed), s.Stats())
			}
		})
	}
}

func TestOwnRunsThatNobodyKnowsEndAsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		s := start(t, db)
		pass(3 * time.Second)
		s.mu.Lock()
		s.known[cron.RunID{1}] = true
		s.mu.Unlock()
		db.set(func() { db.mine = []cron.Run{run(1, "me"), run(2, "me"), run(3, "me")} })
		pass(7300 * time.Millisecond) // a scan, and a second one with the next pass
		want := []cron.End{
			{JobID: 2, RunID: cron.RunID{2}, Slot: run(2, "").Slot, Verdict: cron.Lost, Error: "unknown here"},
			{JobID: 3, RunID: cron.RunID{3}, Slot: run(3, "").Slot, Verdict: cron.Lost, Error: "unknown here"},
		}
		if !reflect.DeepEqual(db.ended, want) {
			t.Errorf("ended %+v, want %+v", db.ended, want)
		}
		if len(s.freed) != 2 || s.freed[0].Verdict != cron.Lost || s.Stats().Unknown != 2 {
			t.Errorf("freed %+v, stats %+v", s.freed, s.Stats())
		}
	})
}

func TestARunUnknownInOneScanOnlyIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		db.mine = []cron.Run{run(1, "me")}
		s := start(t, db)
		for len(db.times("scan")) == 0 {
			pass(10 * time.Millisecond)
		}
		s.mu.Lock()
		s.known[cron.RunID{1}] = true // the claim's answer was still on its way
		s.mu.Unlock()
		pass(7 * time.Second)
		s.mu.Lock()
		delete(s.known, cron.RunID{1})
		s.mu.Unlock()
		db.set(func() { db.said = map[string][]time.Duration{} })
		for len(db.times("scan")) == 0 { // unknown again: the first of two, not the second
			pass(10 * time.Millisecond)
		}
		if len(db.ended) != 0 {
			t.Errorf("ended %+v", db.ended)
		}
	})
}

func TestAnUnknownRunIsEndedAgainAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		db.mine, db.fail["end"] = []cron.Run{run(1, "me"), run(2, "me"), run(3, "me")}, errors.New("connection refused")
		db.accepted = func(e cron.End) cron.Ended { // 2 was refused, of 3 the answer had been lost
			return cron.Ended{JobID: e.JobID, RunID: e.RunID, Accepted: e.JobID != 2, Repeated: e.JobID == 3}
		}
		s := start(t, db)
		pass(5 * time.Second)
		if len(db.times("end")) < 2 {
			t.Errorf("tried %d times in 5 s, want each second", len(db.times("end")))
		}
		db.set(func() { clear(db.fail) })
		pass(1300 * time.Millisecond)
		if len(s.freed) != 1 || s.freed[0].JobID != 1 {
			t.Errorf("freed %+v, want the run whose end was accepted now", s.freed)
		}
	})
}

func TestHousekeepingIsDoneSoonAndThenHourly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		start(t, db)
		pass(13 * time.Second)
		for _, chore := range []string{"partitions", "forget", "retire"} {
			if n := len(db.times(chore)); n != 1 {
				t.Errorf("%s done %d times shortly after the start, want once", chore, n)
			}
		}
		pass(24 * time.Hour)
		for _, chore := range []string{"partitions", "forget", "retire"} {
			if n := len(db.times(chore)); n < 20 || n > 30 {
				t.Errorf("%s done %d times in a day, want hourly", chore, n)
			}
		}
	})
}

func TestHousekeepingThatFailsHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		db.hang = true
		start(t, db)
		pass(5 * time.Minute)
		if n := len(db.times("partitions")); n < 3 || n > 6 {
			t.Errorf("partitions tried %d times in 5 min, want each minute", n)
		}
		if n := len(db.times("forget")); n < 3 {
			t.Errorf("forget done %d times: held up by the chore before it", n)
		}
		if n := len(db.times("unswept")); n < 250 {
			t.Errorf("%d passes in 5 min: held up by housekeeping", n)
		}
	})
}

func TestConfigNeedsSomebodyWhoKnows(t *testing.T) {
	if _, err := New(Config{}, nil, nil); err == nil {
		t.Error("accepted a sweeper that would end every run of its own")
	}
	if _, err := New(Config{Known: func(cron.RunID) bool { return true }, Keep: -1}, nil, nil); err == nil {
		t.Error("accepted a negative number of days")
	}
}
