package store_test

import (
	"fmt"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/store/storetest"
)

func TestEndDecidesOverlappedSlots(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil   func(db storetest.DB, e *cron.End)
		applied bool
	}{
		"applied":          {func(storetest.DB, *cron.End) {}, true},
		"changed schedule": {func(db storetest.DB, e *cron.End) { db.Exec("UPDATE carillon.cron_jobs SET version = version + 1") }, false},
		"range not past":   {func(db storetest.DB, e *cron.End) { e.Overlap.To = db.Now().Add(time.Minute) }, false},
		"no range":         {func(db storetest.DB, e *cron.End) { e.Overlap = cron.Range{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t, "America/New_York")
			slot := db.Now().Truncate(time.Second).Add(-5 * time.Second)
			j := db.Deploy(1, slot)[0]
			c := claim(j)
			start(t, db, c)
			e := cron.End{JobID: j.ID, RunID: c.RunID, Slot: slot, Verdict: cron.Failed, Error: "no", Version: j.Version,
				Overlap: cron.Range{From: c.Next, To: c.Next.Add(3 * time.Second), Count: 4}, Next: c.Next.Add(4 * time.Second)}
			tc.spoil(db, &e)
			done := end(t, db, e)
			if len(done) != 1 || !done[0].Accepted || done[0].Skipped != tc.applied {
				t.Fatalf("done %+v", done)
			}
			got := get(t, db, j.ID)
			want := c.Next
			if tc.applied {
				want = e.Next
			}
			if got.State != cron.Idle || !got.Next.Equal(want) {
				t.Errorf("row %s next %s, want %s", got.State, got.Next, want)
			}
			var ranges int
			db.Scan("SELECT count(*) FROM carillon.runs WHERE verdict = 'skipped_overlap'", nil, &ranges)
			if (ranges == 1) != tc.applied {
				t.Errorf("%d ranges", ranges)
			}
		})
	}
}

// The fence: an end that does not name the current run changes nothing; a repeated one is no late one.
func TestLateAndRepeatedEnds(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		slot := db.Now().Truncate(time.Second).Add(-5 * time.Second)
		j := db.Deploy(1, slot)[0]
		c := claim(j)
		start(t, db, c)
		stranger := cron.End{JobID: j.ID, RunID: newRun(), Slot: slot, Verdict: cron.Succeeded}
		if done := end(t, db, stranger); done[0].Accepted || get(t, db, j.ID).State != cron.Executing {
			t.Fatalf("a stranger's end was accepted: %+v", done)
		}
		mine := cron.End{JobID: j.ID, RunID: c.RunID, Slot: slot, Verdict: cron.Succeeded}
		if done := end(t, db, mine); !done[0].Accepted || done[0].Repeated {
			t.Fatalf("%+v", done)
		}
		if done := end(t, db, mine); !done[0].Accepted || !done[0].Repeated {
			t.Errorf("repeated end: %+v", done)
		}
		mine.Verdict = cron.Failed // as after a sweep: the ledger says something else
		if done := end(t, db, mine); done[0].Accepted {
			t.Errorf("an end against another verdict was accepted: %+v", done)
		}
		var n int
		db.Scan("SELECT count(*) FROM carillon.runs", nil, &n)
		if n != 1 {
			t.Errorf("%d ledger rows", n)
		}
	})
}

func TestOneBadRowAmongAThousandEnds(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	slot := db.Now().Truncate(time.Second).Add(-5 * time.Second)
	jobs := db.Deploy(1000, slot)
	var claims []cron.Claim
	var ends []cron.End
	for i, j := range jobs {
		c := claim(j)
		claims = append(claims, c)
		ends = append(ends, cron.End{JobID: j.ID, RunID: c.RunID, Slot: slot, Verdict: cron.Failed, Error: fmt.Sprint("error ", i)})
	}
	ends[617].Error = "a NUL: \x00, and bad UTF-8: \xff"
	if won := start(t, db, claims...); len(won) != 1000 {
		t.Fatalf("won %d", len(won))
	}
	done := end(t, db, ends...)
	accepted := 0
	for _, d := range done {
		if d.Accepted {
			accepted++
		}
	}
	var recorded int
	var text string
	db.Scan("SELECT count(*) FROM carillon.runs WHERE verdict = 'failed'", nil, &recorded)
	db.Scan("SELECT error FROM carillon.runs WHERE cron_job_id = $1", []any{jobs[617].ID}, &text)
	if accepted != 1000 || recorded != 1000 || text != "a NUL: \uFFFD, and bad UTF-8: \uFFFD" {
		t.Errorf("accepted %d, recorded %d, text %q", accepted, recorded, text)
	}
}

// A slot that has a verdict already, by hand or by a restored backup, must not wedge its row.
func TestLedgerConflictDoesNotWedge(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	slot := db.Now().Truncate(time.Second).Add(-5 * time.Second)
	jobs := db.Deploy(2, slot)
	db.Exec("INSERT INTO carillon.runs (cron_job_id, slot, slot_to, verdict, ended_at) VALUES ($1, $2, $2, 'skipped_missed', now())", jobs[0].ID, slot)
	a, b := claim(jobs[0]), claim(jobs[1])
	start(t, db, a, b)
	done := end(t, db, cron.End{JobID: jobs[0].ID, RunID: a.RunID, Slot: slot, Verdict: cron.Succeeded}, cron.End{JobID: jobs[1].ID, RunID: b.RunID, Slot: slot, Verdict: cron.Succeeded})
	if len(done) != 2 || get(t, db, jobs[0].ID).State != cron.Idle || get(t, db, jobs[1].ID).State != cron.Idle {
		t.Errorf("done %+v", done)
	}
}
