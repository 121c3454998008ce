package main

import (
	"strings"
	"testing"

	carillonv1 "carillon/proto/carillon/v1"
)

func TestTriggersLsShowsDuplicates(t *testing.T) {
	made := func(id, kind, arguments string, second int, change ...func(*carillonv1.Trigger)) *carillonv1.Trigger {
		tr := aTrigger(id, kind, arguments)
		tr.CreatedAt = at(second)
		for _, c := range change {
			c(tr)
		}
		return tr
	}
	message := func(tr *carillonv1.Trigger) { tr.Message = []byte(`{"a": {"b":1}}`) } // other bytes
	f := startFake(t, &fakeController{fakeTriggers: fakeTriggers{triggers: []*carillonv1.Trigger{
		made("young", "@daily", "", 9), made("hook1", "@webhook", "", 4), made("old", "@daily", "", 1), made("middle", "@daily", "", 5),
		made("other", "@daily", "", 2, message), made("elsewhere", "@daily", "", 2, func(tr *carillonv1.Trigger) { tr.Tenant = "b" }),
		made("paris", "@daily", "", 2, func(tr *carillonv1.Trigger) { tr.TimeZone = "Europe/Paris" }),
		made("in1", "@in", "10m", 2), made("in2", "@in", "10m", 3), made("hook2", "@webhook", "", 6),
	}}})
	ids := func(args ...string) string {
		t.Helper()
		var groups []string
		for _, g := range decode[[][]object](t, f, append([]string{"triggers", "ls", "--duplicates"}, args...)...) {
			var ids []string
			for _, row := range g {
				ids = append(ids, row["id"].(string))
			}
			groups = append(groups, strings.Join(ids, " "))
		}
		return strings.Join(groups, ", ")
	}
	if got := ids("--tenant", "acme"); got != "old middle young, hook1 hook2" || f.askedFor[0].GetTenant() != "acme" {
		t.Errorf("groups %q, asked %v", got, f.askedFor[0])
	}
	if got := ids("--limit", "1"); got != "old middle young" {
		t.Errorf("one group is %q", got)
	}
	code, stdout, stderr := carillon(t, "triggers", "ls", "--duplicates", "--controller", f.url)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != 0 || len(lines) != 6 || !strings.HasPrefix(lines[1], "old ") || !strings.HasPrefix(lines[3], "young") || !strings.Contains(lines[3], " old ") || !strings.Contains(stderr, "hint: `carillon triggers rm <id>`") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	f.triggers = f.triggers[1:2]
	if code, stdout, stderr := carillon(t, "triggers", "ls", "--duplicates", "--controller", f.url); code != 0 || stdout != "" || !strings.Contains(stderr, "no two triggers do the same") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if _, stdout, _ := carillon(t, "triggers", "ls", "--duplicates", "-o", "json", "--controller", f.url); stdout != "[]\n" {
		t.Errorf("none are %q", stdout)
	}
}
