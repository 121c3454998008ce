package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
)

func TestTriggersOfOtherKindsHaveNoRow(t *testing.T) {
	db := storetest.Open(t, "")
	event := create(t, db, newTrigger(trigger.Event, "io.cozy.files:CREATED"))
	hook := create(t, db, newTrigger(trigger.Webhook, "", func(tr *trigger.Trigger) { tr.Secret, tr.Debounce, tr.DebounceFor = []byte("s"), "1m", time.Minute }))
	client := create(t, db, newTrigger(trigger.Client, ""))
	var rows, epoch int64
	db.Scan("SELECT (SELECT count(*) FROM carillon.cron_jobs), n FROM carillon.trigger_epoch", nil, &rows, &epoch)
	if rows != 0 || epoch != 1 {
		t.Errorf("%d rows, epoch %d", rows, epoch)
	}
	if got, err := db.FindWebhook(t.Context(), hook.Key); err != nil || string(got.Secret) != "s" || got.DebounceFor != time.Minute || got.Debounce != "1m" {
		t.Errorf("webhook %+v, %v", got, err)
	}
	if _, err := db.FindWebhook(t.Context(), event.Key); !errors.Is(err, cron.ErrInvalid) {
		t.Errorf("an event trigger is a webhook: %v", err)
	}
	if _, err := db.FindWebhook(t.Context(), strings.Repeat("0", 32)); !errors.Is(err, cron.ErrNotFound) {
		t.Errorf("nobody's key: %v", err)
	}
	if _, err := db.PauseTrigger(t.Context(), "t", client.Key, ""); !errors.Is(err, cron.ErrPrecond) {
		t.Errorf("paused: %v", err)
	}
	list := func(kinds []trigger.Kind, workers []string, after int64) int {
		got, err := db.ListTriggers(t.Context(), "t", kinds, workers, after, 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(got)
	}
	if list(nil, nil, 0) != 3 || list([]trigger.Kind{trigger.Event, trigger.Client}, nil, 0) != 2 || list([]trigger.Kind{trigger.Event}, []string{"other"}, 0) != 0 || list(nil, []string{"x", "mailer"}, event.ID) != 2 {
		t.Error("lists")
	}
	if got, err := db.ListTriggers(t.Context(), "other", nil, nil, 0, 10); err != nil || len(got) != 0 {
		t.Errorf("another tenant's %+v, %v", got, err)
	}
	patched, err := db.PatchTrigger(t.Context(), "", event.Key, func(tr trigger.Trigger, now time.Time) (trigger.Trigger, error) {
		tr.Message = []byte(`"new"`)
		return tr, nil
	})
	if err != nil || string(patched.Message) != `"new"` || patched.Rev != 2 {
		t.Errorf("patched %+v, %v", patched, err)
	}
	db.Exec("INSERT INTO carillon.debounces (trigger_id, fire_at) VALUES ($1, now())", event.ID)
	if _, err := db.DeleteTrigger(t.Context(), "t", event.Key); err != nil {
		t.Fatal(err)
	}
	var windows, of int64
	db.Scan("SELECT (SELECT count(*) FROM carillon.debounces), n, (SELECT epoch FROM carillon.triggers WHERE id = $1) FROM carillon.trigger_epoch", []any{event.ID}, &windows, &epoch, &of)
	if windows != 0 || epoch != 3 || of != 3 {
		t.Errorf("%d windows, epoch %d, the trigger's %d", windows, epoch, of)
	}
}

func TestAKeyMakesOneTrigger(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ids := make([]int64, 20)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				made, err := db.CreateTrigger(t.Context(), newTrigger([]trigger.Kind{trigger.In, trigger.Event}[i%2], []string{"1h", "io.cozy.files"}[i%2]), fmt.Sprint("key", i%2))
				if err != nil {
					t.Error(err)
				}
				ids[i] = made.ID
			})
		}
		wg.Wait()
		for i := range ids {
			if ids[i] != ids[i%2] {
				t.Fatalf("made %v", ids)
			}
		}
		if _, err := db.CreateTrigger(t.Context(), newTrigger(trigger.In, "2h"), "key0"); !errors.Is(err, cron.ErrExists) {
			t.Errorf("another request: %v", err)
		}
		if made, err := db.CreateTrigger(t.Context(), newTrigger(trigger.In, "1h", func(tr *trigger.Trigger) { tr.Tenant = "u" }), "key0"); err != nil || made.ID == ids[0] {
			t.Errorf("another tenant: %v, %v", made, err)
		}
		db.Exec("UPDATE carillon.job_keys SET expires_at = now() - interval '1 second'")
		if made, err := db.CreateTrigger(t.Context(), newTrigger(trigger.In, "2h"), "key0"); err != nil || made.ID == ids[0] {
			t.Errorf("expired: %v, %v", made, err)
		}
		for _, bad := range []trigger.Trigger{newTrigger(trigger.In, "-5m"), newTrigger(trigger.Cron, "0 0 30 2 *"), newTrigger(trigger.Every, "300ms")} {
			if _, err := db.CreateTrigger(t.Context(), bad, ""); !errors.Is(err, cron.ErrInvalid) || !errors.As(err, new(*trigger.Fault)) {
				t.Errorf("%s %s: %v", bad.Kind, bad.Arguments, err)
			}
		}
		var n int
		db.Scan("SELECT count(*) FROM carillon.triggers", nil, &n)
		if n != 4 {
			t.Errorf("%d triggers", n)
		}
	})
}

func TestPatchedPausedAndDeleted(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		made := create(t, db, newTrigger(trigger.Cron, "0 12 * * *", func(tr *trigger.Trigger) { tr.TimeZone = "Europe/Paris" }))
		row := get(t, db, made.CronJob)
		if row.Schedule != "@cron 0 0 12 * * *" && row.Schedule != "@cron 0 12 * * *" || row.Zone != "Europe/Paris" {
			t.Errorf("row %+v", row)
		}
		patch := func(arguments, message string) trigger.Trigger {
			t.Helper()
			patched, err := db.PatchTrigger(ctx, "t", made.Key, func(tr trigger.Trigger, now time.Time) (trigger.Trigger, error) {
				if d := db.Now().Sub(now); d < 0 || d > 10*time.Second {
					t.Errorf("now is %v ago", d)
				}
				tr.Arguments, tr.Message = arguments, []byte(message)
				return tr, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return patched
		}
		patched := patch("0 0 1 1 *", "1")
		if patched.Rev != 2 || patched.Next.Month() != time.December || patched.Next.Hour() != 23 || string(patched.Message) != "1" {
			t.Errorf("patched %+v", patched)
		}
		if again := get(t, db, made.CronJob); again.Version != row.Version+1 || fire(t, db, fireClaim(row)) != nil && len(fire(t, db, fireClaim(row))) > 0 {
			t.Errorf("row %+v", again)
		}
		if same := patch("0 0 1 1 *", "2"); get(t, db, made.CronJob).Version != row.Version+1 || same.Next != patched.Next {
			t.Errorf("a new message moved the row: %+v", same)
		}
		if _, err := db.PatchTrigger(ctx, "t", made.Key, func(tr trigger.Trigger, _ time.Time) (trigger.Trigger, error) {
			tr.Arguments, tr.Message = "61 * * * *", nil
			return tr, nil
		}); !errors.Is(err, cron.ErrInvalid) {
			t.Errorf("a bad expression: %v", err)
		}
		if kept, _ := db.GetTrigger(ctx, "t", made.Key); string(kept.Message) != "2" || kept.Rev != 3 {
			t.Errorf("a refused patch left %+v", kept)
		}

		paused, err := db.PauseTrigger(ctx, "t", made.Key, "why")
		if err != nil || paused.PausedAt.IsZero() || paused.PausedNote != "why" || get(t, db, made.CronJob).Enabled {
			t.Errorf("paused %+v, %v", paused, err)
		}
		rewind(db, patched, 800*24*time.Hour)
		resumed, err := db.ResumeTrigger(ctx, "t", made.Key, "done")
		if err != nil || !resumed.PausedAt.IsZero() || resumed.PausedNote != "" || !resumed.Next.Equal(patched.Next) || !get(t, db, made.CronJob).Enabled {
			t.Errorf("resumed %+v, %v", resumed, err)
		}
		if runs := history(t, db, made.CronJob); len(runs) != 1 || runs[0].Verdict != cron.SkippedPaused || runs[0].Count < 2 || runs[0].Error != "paused: why; done" {
			t.Errorf("ledger %+v", runs)
		}

		once := create(t, db, newTrigger(trigger.In, "1ms"))
		if _, err := db.PauseTrigger(ctx, "t", once.Key, ""); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return db.Now().After(once.Next) })
		if _, err := db.ResumeTrigger(ctx, "t", once.Key, ""); err != nil {
			t.Fatal(err)
		}
		if fired := fire(t, db, dueClaim(t, db, once.CronJob)); len(fired) != 1 {
			t.Errorf("what fires once was skipped: %+v", fired)
		}

		for tenant, want := range map[string]error{"other": cron.ErrNotFound, "t": nil} {
			if _, err := db.DeleteTrigger(ctx, tenant, made.Key); !errors.Is(err, want) {
				t.Errorf("deleted by %s: %v", tenant, err)
			}
		}
		if _, err := db.DeleteTrigger(ctx, "t", made.Key); !errors.Is(err, cron.ErrNotFound) {
			t.Errorf("deleted twice: %v", err)
		}
		if row := get(t, db, made.CronJob); row.Enabled || row.RemovedAt.IsZero() {
			t.Errorf("row %+v", row)
		}
	})
}

func TestAMalformedTriggerIsSetAside(t *testing.T) {
	db := storetest.Open(t, "")
	made := create(t, db, newTrigger(trigger.Cron, "* * * * *"))
	db.Exec("UPDATE carillon.cron_jobs SET schedule = '@cron nonsense'")
	row := get(t, db, made.CronJob)
	if err := db.SetAsideCronJob(t.Context(), row.ID, row.Version, "invalid cron expression"); err != nil {
		t.Fatal(err)
	}
	bad, err := db.GetTrigger(t.Context(), "t", made.Key)
	if err != nil || bad.LastError != "invalid cron expression" || get(t, db, row.ID).Enabled {
		t.Errorf("set aside: %+v, %v", bad, err)
	}
	mended, err := db.PatchTrigger(t.Context(), "t", made.Key, func(tr trigger.Trigger, _ time.Time) (trigger.Trigger, error) {
		tr.Arguments = "*/5 * * * *"
		return tr, nil
	})
	if err != nil || mended.LastError != "" || !get(t, db, row.ID).Enabled || !get(t, db, row.ID).SetAsideAt.IsZero() {
		t.Errorf("mended: %+v, %v", mended, err)
	}
}
