package main

import (
	"strings"
	"testing"
	"time"

	"carillon/backend/core/schema"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
)

func TestNoTokenIsNotAnUnknownOne(t *testing.T) {
	f := startFake(t, &fakeController{token: "right"})
	if code, _, stderr := carillon(t, "ps", "--controller", f.url); code != 1 || !strings.Contains(stderr, f.url+" asks for a token\nhint: give the cluster's admin token by") {
		t.Errorf("without: code %d, %q", code, stderr)
	}
	if code, _, stderr := carillon(t, "ps", "--controller", f.url, "--token", "wrong"); code != 1 || !strings.Contains(stderr, "does not know this token") {
		t.Errorf("with a wrong one: code %d, %q", code, stderr)
	}
}

func TestScaleSaysWhatHappens(t *testing.T) {
	f := startFake(t, &fakeController{})
	for n, want := range map[string]string{"0": "mailroom (k) starts nothing any more; `carillon scale mailroom 1`", "2": "mailroom (k) wants 2 runners"} {
		if code, stdout, stderr := carillon(t, "scale", "mailroom", n, "--controller", f.url); code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("scale to %s: code %d, %q, %q", n, code, stdout, stderr)
		}
	}
	if code, _, stderr := carillon(t, "scale", "gone", "1", "--controller", f.url); code != 1 || !strings.Contains(stderr, "scale gone to 1: not found: nothing of module gone is deployed\nhint: `carillon ps` lists") {
		t.Errorf("code %d, %q", code, stderr)
	}
}

func TestAModuleWithoutCronJobsHasItsVerbsCounted(t *testing.T) {
	m := schema.Module{Name: "shop", Verbs: make([]schema.Verb, 4)}
	if got, want := summary(m, nil), "4 verbs, no cron jobs"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := summary(m, []*carillonv1.Change{{Kind: carillonv1.Change_KIND_ADDED}}), "1 added"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var out strings.Builder
	showPlan(&app{stdout: &out}, m, &carillonv1.PlanResponse{})
	if got, want := out.String(), "module shop has 4 verbs, no cron jobs\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAnEmptyDatabaseIsNotAnOldOne(t *testing.T) {
	if err := requireSchema(t.Context(), storetest.EmptyURL(t)); err == nil || err.Error() != "the database has no schema yet" {
		t.Errorf("got %v", err)
	}
	db := storetest.Open(t, "UTC")
	if err := requireSchema(t.Context(), db.URL); err != nil {
		t.Error(err)
	}
}

func TestFarSlotsAreDaysAway(t *testing.T) {
	code, stdout, _ := carillon(t, "cron", "next", "0 0 5 1 *", "--from", "2026-01-01T00:00:00Z", "-n", "1")
	if code != 0 || !strings.Contains(stdout, "4d0h") {
		t.Errorf("code %d, %q", code, stdout)
	}
	if got := distance(90 * time.Second); got != "1m30s" {
		t.Errorf("got %q", got)
	}
}

func TestExamplesWorkBelowTheDataOfDev(t *testing.T) {
	d := &dev{data: "/data"}
	t.Setenv("MAILROOM_DIR", "")
	if got, want := d.workDir("MAILROOM_DIR", "mailroom"), "MAILROOM_DIR=/data/mailroom"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	t.Setenv("MAILROOM_DIR", "/elsewhere")
	if got, want := d.workDir("MAILROOM_DIR", "mailroom"), "MAILROOM_DIR=/elsewhere"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheHelpOfDevNamesItsDirectory(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	if code, stdout, _ := carillon(t, "dev", "--help"); code != 0 || !strings.Contains(stdout, "/state/carillon") {
		t.Errorf("code %d, %q", code, stdout)
	}
}

func TestAnUnknownVerbIsNotAnUnknownModule(t *testing.T) {
	if hint := refusalHint(&carillonv1.EnqueueError{Code: "not_found", Message: "not found: module m has no verb nope"}); !strings.Contains(hint, "carillon schema DIR") || strings.Contains(hint, "is the module deployed") {
		t.Errorf("hint %q", hint)
	}
}
