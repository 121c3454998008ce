package rpc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"carillon/backend/core/cron"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
)

// All pages together hold every row that was there once, whatever ends meanwhile.
func TestPagesCoverEverythingOnce(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "Asia/Tokyo")
	jobs := db.Deploy(30, db.Now().Truncate(time.Second).Add(-time.Second))
	face, _ := handler(t, db.Store, Tokens{})
	url, h2c := serve(t, face)
	client := wires(h2c)["connect proto"].clients(url)
	write := func(first, n int) { // statements of ten rows, each with one end for all
		for i := first; i < first+n; i++ {
			db.Exec(fmt.Sprintf(`INSERT INTO carillon.runs (cron_job_id, slot, slot_to, verdict, ended_at)
				SELECT id, date_trunc('day', now()) - make_interval(secs => %d), date_trunc('day', now()) - make_interval(secs => %d), 'skipped_missed', now()
				FROM carillon.cron_jobs ORDER BY id LIMIT 10`, i, i))
		}
	}
	write(0, 15)
	var claims []cron.Claim
	for _, j := range jobs[5:30] {
		claims = append(claims, cron.Claim{JobID: j.ID, Version: j.Version, Expected: j.Next, Slot: j.Next, Next: j.Next.Add(time.Second), RunID: cron.RunID(uuid.Must(uuid.NewV7()))})
	}
	if won, err := db.StartCronJobs(t.Context(), "c1", time.Minute, claims); err != nil || len(won) != 25 {
		t.Fatalf("%v, %v", won, err)
	}
	seen, executing := map[string]int{}, map[string]int{}
	req := &carillonv1.ListRunsRequest{PageSize: 7, Module: "m"}
	for pages := 0; ; pages++ {
		res, err := client.runs.ListRuns(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range res.GetRuns() {
			if r.GetVerdict() == carillonv1.Verdict_VERDICT_UNSPECIFIED {
				executing[r.GetRunId()]++
				continue
			}
			seen[r.GetRef()+r.GetSlot().AsTime().String()]++
		}
		write(1000+pages, 1)
		if req.PageToken = res.GetNextPageToken(); req.PageToken == "" || pages > 100 {
			break
		}
	}
	if len(executing) != 25 {
		t.Errorf("%d of 25 runs in flight", len(executing))
	}
	old := 0
	for _, j := range jobs[:10] {
		for i := range 15 {
			var slot time.Time
			db.Scan("SELECT date_trunc('day', now()) - make_interval(secs => $1)", []any{i}, &slot)
			old += seen[j.Ref+slot.UTC().String()]
		}
	}
	if old != 150 {
		t.Errorf("%d of the 150 rows that were there", old)
	}
	for what, list := range map[string]map[string]int{"ended": seen, "executing": executing} {
		for key, n := range list {
			if n != 1 {
				t.Errorf("%s %s: %d times", what, key, n)
			}
		}
	}
}

func TestFiltersOfRuns(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	slot := db.Now().Truncate(time.Second).Add(-time.Minute)
	jobs := db.Deploy(3, slot)
	s := &server{Config: Config{Reader: &hall{Store: db.Store}}}
	claim := func(j cron.Job) cron.RunID {
		id := cron.RunID(uuid.Must(uuid.NewV7()))
		if won, err := db.StartCronJobs(t.Context(), "c-"+j.Ref, time.Minute, []cron.Claim{{JobID: j.ID, Version: j.Version, Expected: j.Next, Slot: j.Next, Next: j.Next.Add(time.Second), RunID: id}}); err != nil || len(won) != 1 {
			t.Fatal(won, err)
		}
		return id
	}
	id := claim(jobs[0])
	claim(jobs[1])
	if _, err := db.EndCronJobs(t.Context(), []cron.End{{JobID: jobs[0].ID, RunID: id, Slot: slot, Verdict: cron.Failed, Error: "why"}}); err != nil {
		t.Fatal(err)
	}
	failed, none := carillonv1.Verdict_VERDICT_FAILED, carillonv1.Verdict_VERDICT_UNSPECIFIED
	for name, c := range map[string]struct {
		req  *carillonv1.ListRunsRequest
		want string
	}{
		"all":             {&carillonv1.ListRunsRequest{}, "m.v1 m.v0 "},
		"executing":       {&carillonv1.ListRunsRequest{Verdicts: []carillonv1.Verdict{none}}, "m.v1 "},
		"failed":          {&carillonv1.ListRunsRequest{Verdicts: []carillonv1.Verdict{failed}}, "m.v0 "},
		"both":            {&carillonv1.ListRunsRequest{Verdicts: []carillonv1.Verdict{failed, none}}, "m.v1 m.v0 "},
		"succeeded":       {&carillonv1.ListRunsRequest{Verdicts: []carillonv1.Verdict{1}}, ""},
		"ref":             {&carillonv1.ListRunsRequest{Ref: "m.v1"}, "m.v1 "},
		"controller":      {&carillonv1.ListRunsRequest{Controller: "c-m.v0"}, "m.v0 "},
		"unknown module":  {&carillonv1.ListRunsRequest{Module: "x"}, ""},
		"from after both": {&carillonv1.ListRunsRequest{From: stamp(slot.Add(time.Second))}, ""},
		"to is excluded":  {&carillonv1.ListRunsRequest{To: stamp(slot)}, ""},
		"from and to":     {&carillonv1.ListRunsRequest{From: stamp(slot), To: stamp(slot.Add(time.Second))}, "m.v1 m.v0 "},
	} {
		res, err := s.ListRuns(context.Background(), c.req)
		got := ""
		for _, r := range res.GetRuns() {
			got += r.GetRef() + " "
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}
