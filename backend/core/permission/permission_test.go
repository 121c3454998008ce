package permission

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/cron"
)

// action asks what the conformance list names by method and path.
func action(t *testing.T, token Token, own TriggerDoc, method, path string) bool {
	t.Helper()
	path, query, _ := strings.Cut(path, "?")
	worker, queued := strings.CutPrefix(path, "/jobs/queue/")
	switch {
	case queued && method == Post:
		return token.MayPushJob(worker, false)
	case queued && method == Get:
		return token.MayListJobsOf(worker)
	case path == "/jobs/queue":
		return token.MayListJobs()
	case path == "/jobs/purge":
		return token.MayPurge()
	case path == "/jobs/support":
		return token.MayMailSupport()
	case path == "/jobs/campaign-emails":
		return token.MayMailCampaign()
	case path == "/jobs/triggers" && method == Get:
		var workers []string
		if list, ok := strings.CutPrefix(query, "Worker="); ok {
			workers = strings.Split(list, ",")
		}
		return token.MayListTriggers(workers)
	case path == "/jobs/triggers/<own>/launch":
		return token.MayLaunchTrigger(own)
	case path == "/jobs/triggers/<own>/jobs":
		return token.MayListJobsOfTrigger(own)
	case path == "/jobs/triggers/<own>" || path == "/jobs/triggers/<own>/state":
		return map[string]func(TriggerDoc) bool{Get: token.MayReadTrigger, Patch: token.MayPatchTrigger, Delete: token.MayDeleteTrigger}[method](own)
	}
	t.Fatalf("unknown action %s %s", method, path)
	return false
}

func TestConformance(t *testing.T) {
	data, err := os.ReadFile("testdata/cozy.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, raw := range list {
		var head struct{ ID, Area string }
		if err := json.Unmarshal(raw, &head); err != nil {
			t.Fatal(err)
		}
		if head.Area != "permission" {
			continue
		}
		ran++
		t.Run(head.ID, func(t *testing.T) {
			var c struct {
				Input    struct{ Scope, Action string }
				Expected struct{ Allowed bool }
			}
			if err := json.Unmarshal(raw, &c); err != nil {
				t.Fatal(err)
			}
			token, own := Token{Kind: App}, TriggerDoc{ID: "t1", Worker: "konnector", Konnector: "bank"}
			if c.Input.Scope == "konnector token, own trigger, no rule" {
				token = Token{Kind: Konnector, Slug: "bank"}
			} else if token.Scope, err = Parse(c.Input.Scope); err != nil {
				t.Fatal(err)
			}
			methods, path, _ := strings.Cut(c.Input.Action, " ")
			for method := range strings.SplitSeq(methods, "|") {
				if got := action(t, token, own, method, path); got != c.Expected.Allowed {
					t.Errorf("%s %s with %q: %v", method, path, c.Input.Scope, got)
				}
			}
		})
	}
	if ran != 8 {
		t.Errorf("ran %d cases, want 8", ran)
	}
}

func TestActionsNeedTheirRule(t *testing.T) {
	own := TriggerDoc{ID: "t1", Worker: "sendmail"}
	for _, c := range []struct {
		action, scope string
		want          bool
	}{
		{"POST /jobs/queue/sendmail", "io.cozy.jobs:POST:sendmail:worker", true},
		{"POST /jobs/queue/sendmail", "io.cozy.jobs:POST:print,sendmail:worker", true},
		{"POST /jobs/queue/sendmail", "io.cozy.jobs", false},
		{"POST /jobs/queue/sendmail", "io.cozy.jobs:POST", false},
		{"POST /jobs/queue/sendmail", "io.cozy.jobs:POST:sendmail", false},
		{"POST /jobs/queue/sendmail", "io.cozy.jobs:POST:sendmail:domain", false},
		{"POST /jobs/queue/sendmail", "io.cozy.triggers:POST:sendmail:worker", false},
		{"POST /jobs/queue/sendmail", "io.cozy.jobs io.cozy.jobs:ALL:sendmail:worker", true},
		{"POST /jobs/queue/", "io.cozy.jobs:ALL:sendmail:worker", false},
		{"GET /jobs/queue/sendmail", "io.cozy.jobs:GET:sendmail:worker", true},
		{"GET /jobs/queue/sendmail", "io.cozy.jobs:GET", true},
		{"GET /jobs/queue/print", "io.cozy.jobs:GET:sendmail:worker", false},
		{"GET /jobs/queue", "io.cozy.jobs:GET:sendmail:worker", false},
		{"GET /jobs/queue", "io.cozy.jobs:GET", true},
		{"GET /jobs/queue", "io.cozy.jobs:POST", false},
		{"GET /jobs/triggers", "io.cozy.triggers:GET:konnector:worker", false},
		{"GET /jobs/triggers?Worker=a,b", "io.cozy.triggers:GET:a,b:worker", false},
		{"GET /jobs/triggers?Worker=a,b", "io.cozy.triggers:GET", true},
		{"GET /jobs/triggers?Worker=", "io.cozy.triggers:GET:a:worker", false},
		{"GET /jobs/triggers/<own>", "io.cozy.triggers:GET:sendmail:worker", true},
		{"GET /jobs/triggers/<own>", "io.cozy.triggers:GET:t1", true},
		{"GET /jobs/triggers/<own>", "io.cozy.triggers:GET:t2", false},
		{"GET /jobs/triggers/<own>", "io.cozy.jobs", false},
		{"GET /jobs/triggers/<own>/jobs", "io.cozy.triggers:GET", true},
		{"DELETE /jobs/triggers/<own>", "io.cozy.triggers:GET,PATCH", false},
		{"POST /jobs/triggers/<own>/launch", "io.cozy.triggers:POST:sendmail:worker", true},
		{"POST /jobs/triggers/<own>/launch", "io.cozy.triggers:GET", false},
		{"POST /jobs/support", "io.cozy.support:POST", true},
		{"POST /jobs/support", "io.cozy.support:GET", false},
		{"POST /jobs/support", "io.cozy.jobs:POST:sendmail:worker", true},
		{"POST /jobs/support", "io.cozy.jobs:POST", true},
		{"POST /jobs/support", "io.cozy.jobs:POST:print:worker", false},
		{"POST /jobs/campaign-emails", "io.cozy.jobs:POST:sendmail:worker", true},
		{"POST /jobs/campaign-emails", "io.cozy.support", false},
		{"DELETE /jobs/purge", "io.cozy.jobs:DELETE", true},
		{"DELETE /jobs/purge", "io.cozy.jobs:DELETE:sendmail:worker", false},
		{"DELETE /jobs/purge", "io.cozy.jobs:GET", false},
	} {
		set, err := Parse(c.scope)
		if err != nil {
			t.Fatal(err)
		}
		method, path, _ := strings.Cut(c.action, " ")
		if got := action(t, Token{Kind: App, Scope: set}, own, method, path); got != c.want {
			t.Errorf("%s with %q: %v", c.action, c.scope, got)
		}
		if action(t, Token{Kind: App}, own, method, path) {
			t.Errorf("%s: allowed to a token without a rule", c.action)
		}
		if full := (Token{Kind: CLI, Scope: Full()}); !action(t, full, own, method, path) && path != "/jobs/queue/" {
			t.Errorf("%s: denied to the operator", c.action)
		}
	}
}

func TestReservedWorkersAreTheOperators(t *testing.T) {
	set, err := Parse("io.cozy.jobs:POST:export:worker io.cozy.triggers:POST:export:worker")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range Kinds {
		token := Token{Kind: kind, Scope: set}
		if token.MayPushJob("export", true) != (kind == CLI) || token.MayCreateTrigger("export", true) != (kind == CLI) {
			t.Errorf("%s: a reserved worker", kind)
		}
		if !token.MayPushJob("export", false) || !token.MayCreateTrigger("export", false) {
			t.Errorf("%s: a worker that is not reserved", kind)
		}
		if token.MayForwardLogs() != (kind == CLI) {
			t.Errorf("%s: logs", kind)
		}
	}
	if (Token{Scope: set}).MayPushJob("export", true) {
		t.Error("a token of no kind has a reserved worker")
	}
}

func TestEverythingOfAnApplicationNamesNoWorker(t *testing.T) {
	for _, kind := range append(Kinds, "") {
		token, operator := Token{Kind: kind, Scope: Full()}, kind == CLI
		if token.MayPushJob("print", false) != operator || token.MayCreateTrigger("print", false) != operator || token.MayMailCampaign() != operator {
			t.Errorf("%q with %s runs what nobody named", kind, Everything)
		}
		if !token.MayListJobs() || !token.MayPurge() || !token.MayLaunchTrigger(TriggerDoc{ID: "t1", Worker: "print"}) {
			t.Errorf("%q with %s may not do what a rule on the whole type allows", kind, Everything)
		}
	}
	for _, scope := range []string{"io.cozy.jobs:POST:*", "io.cozy.jobs:POST:*:worker", "io.cozy.jobs:ALL:print,*:id", "io.cozy.*", "io.cozy.jobs.*"} {
		set, _ := Parse(scope)
		for _, kind := range Kinds {
			if (Token{Kind: kind, Scope: set}).MayPushJob("print", false) {
				t.Errorf("%q of kind %s runs print", scope, kind)
			}
		}
	}
}

func TestReservedByAnyName(t *testing.T) {
	for _, c := range []struct {
		reserved, worker, ref string
		want                  bool
	}{
		{"vault", "vault", "", true}, {"vault", "vault", "vault.open", true}, {"vault", "open", "vault.open", true}, {"vault", "vault.open", "", true},
		{"open", "vault", "vault.open", true}, {"open", "vault.open", "vault.open", true}, {"vault.open", "vault", "vault.open", true},
		{"vault.open", "vault.shut", "vault.shut", false}, {"vault.open", "open", "door.open", false}, {"vault", "print", "print.print", false},
		{"", "vault", "", false}, {"vault", "", "", false}, {"share-upload", "files.shareUpload", "files.shareUpload", true}, {"shareUpload", "share-upload", "", true},
		{"share-upload", "files", "files.shareUpload", true}, {"share-upload", "share-update", "files.shareUpdate", false},
	} {
		if got := (Reserved{"client", c.reserved}).Covers(c.worker, c.ref); got != c.want {
			t.Errorf("%q covers %q of %q: %v", c.reserved, c.worker, c.ref, got)
		}
	}
	for worker, verb := range map[string]string{"share-upload": "shareUpload", "print": "print", "a-b-c": "aBC", "zip2": "zip2", "": ""} {
		if VerbName(worker) != verb || WorkerName(verb) != worker {
			t.Errorf("%q is the verb %q, and back %q", worker, VerbName(worker), WorkerName(verb))
		}
	}
	for _, odd := range []string{"-", "--", "a-", "-a", "a--b", "-é"} {
		_ = VerbName(odd) // is nobody's
	}
	for name, good := range map[string]bool{"vault": true, "vault.open": true, "share-upload": true, "": false, "a b": false, "a.b.c": false, "a,b": false, "a:b": false, "a\x00": false} {
		if err := (Reserved{"print", name}).Check(); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestKonnectorsHaveTheirOwnTriggersOnly(t *testing.T) {
	own := TriggerDoc{ID: "t1", Worker: "konnector", Konnector: "bank"}
	for name, c := range map[string]struct {
		token Token
		doc   TriggerDoc
		want  bool
	}{
		"by slug":                  {Token{Kind: Konnector, Slug: "bank"}, own, true},
		"by id":                    {Token{Kind: Konnector, Trigger: "t1"}, own, true},
		"another id, same slug":    {Token{Kind: Konnector, Trigger: "t2", Slug: "bank"}, own, false},
		"another slug":             {Token{Kind: Konnector, Slug: "tax"}, own, false},
		"an application's slug":    {Token{Kind: App, Slug: "bank", Trigger: "t1"}, own, false},
		"no slug and no konnector": {Token{Kind: Konnector}, TriggerDoc{ID: "t1", Worker: "konnector"}, false},
		"another worker":           {Token{Kind: Konnector, Slug: "bank"}, TriggerDoc{ID: "t1", Worker: "service", Konnector: "bank"}, false},
		"nothing at all":           {Token{}, TriggerDoc{}, false},
	} {
		for what, may := range map[string]func(TriggerDoc) bool{"GET": c.token.MayReadTrigger, "PATCH": c.token.MayPatchTrigger, "DELETE": c.token.MayDeleteTrigger} {
			if may(c.doc) != c.want {
				t.Errorf("%s: %s gave %v", name, what, !c.want)
			}
		}
		if c.token.MayLaunchTrigger(c.doc) || c.token.MayListJobsOfTrigger(c.doc) {
			t.Errorf("%s: may launch, or list jobs", name)
		}
	}
}

func TestTypesCoverThemselvesAndWhatIsBelow(t *testing.T) {
	for _, c := range []struct {
		rule, doctype string
		want          bool
	}{
		{"io.cozy.bank", "io.cozy.bank", true}, {"io.cozy.bank", "io.cozy.bank.accounts", false},
		{"io.cozy.bank.*", "io.cozy.bank", true}, {"io.cozy.bank.*", "io.cozy.bank.accounts.stats", true},
		{"io.cozy.bank.*", "io.cozy.banks", false}, {"io.cozy.bank.*", "io.cozy", false}, {"io.cozy.bank.*", "", false},
	} {
		if got := (Rule{Type: c.rule}).Covers(c.doctype); got != c.want {
			t.Errorf("%s covers %s: %v", c.rule, c.doctype, got)
		}
	}
}

func TestScopesThatAreRefused(t *testing.T) {
	for _, text := range []string{
		"", " ", "io.cozy.jobs ", " io.cozy.jobs", "io.cozy.jobs  io.cozy.triggers", "io.cozy.jobs\tio.cozy.triggers", "*", "io.*",
		"io.cozy.*", "IO.COZY.JOBS", "io.cozy.account-types", "io..cozy", ".io.cozy", "io.cozy.", "io.cozy.jobs.**", ":GET", "io.cozy.jobs:",
		"io.cozy.jobs:get", "io.cozy.jobs:CREATED", "io.cozy.jobs:GET,", "io.cozy.jobs::a:worker", "io.cozy.jobs:GET:", "io.cozy.jobs:GET:a:",
		"io.cozy.jobs:GET::worker", "io.cozy.jobs:GET:a,,b", "io.cozy.jobs:GET:a:worker:x", "io.cozy.jobs:HEAD", "io.cozy.jobs:GET:a\x00b",
		"io.cozy.jobs:GET:\xff", "io.cozy.jobs:GET:a\u00a0b", strings.Repeat("a", MaxText+1), strings.Repeat("a ", MaxRules) + "a",
	} {
		_, err := Parse(text)
		var e *ScopeError
		if !errors.As(err, &e) || !errors.Is(err, cron.ErrInvalid) || !strings.HasPrefix(err.Error(), Malformed) || len(err.Error()) > 500 {
			t.Errorf("%.80q: got %v", text, err)
		}
	}
	for _, object := range []string{
		``, `null`, `[]`, `{}`, `1`, `"io.cozy.jobs"`, `[null]`, `[1]`, `{"type":1}`, `{"type":"io.cozy.jobs","value":["a"]}`,
		`{"type":"io.cozy.jobs","selector":"worker"}`, `{"type":"io.cozy.jobs","selector":"worker","values":[]}`,
		`{"type":"io.cozy.jobs","values":["a b"]}`, `{"type":"io.cozy.jobs","values":["a,b"]}`, `{"type":"io.cozy.jobs","values":["a:b"]}`,
		`{"type":"io.cozy.jobs","values":[""]}`, `{"type":"io.cozy.jobs","verbs":["get"]}`, `{"type":"io.cozy.jobs","verbs":"GET"}`,
		`{"permissions":1}`, `{"permissions":{}}`, `{"a":{"type":"*"}}`, `{"type":"io.cozy.jobs"} {}`,
	} {
		if set, err := ParseObject([]byte(object)); !errors.Is(err, cron.ErrInvalid) || set.String() != "" {
			t.Errorf("%s: got %q, %v", object, set, err)
		}
	}
}

func TestObjectsSayTheSameAsTexts(t *testing.T) {
	for object, text := range map[string]string{
		`{"type":"io.cozy.jobs"}`:                                              "io.cozy.jobs",
		`{"type":"io.cozy.jobs","verbs":["ALL"]}`:                              "io.cozy.jobs",
		`{"type":"io.cozy.jobs","verbs":[],"values":[]}`:                       "io.cozy.jobs",
		`[{"type":"io.cozy.jobs","verbs":["GET"]},{"type":"io.cozy.support"}]`: "io.cozy.jobs:GET io.cozy.support",
		`{"type":"io.cozy.jobs","selector":"worker","values":["sendmail"]}`:    "io.cozy.jobs:ALL:sendmail:worker",
		`{"permissions":{"mail":{"description":"Required to mail","type":"io.cozy.jobs","verbs":["POST"],"selector":"worker","values":["sendmail"]}}}`: "io.cozy.jobs:POST:sendmail:worker",
		`{"b":{"type":"io.cozy.b"},"a":{"type":"io.cozy.a"}}`: "io.cozy.a io.cozy.b",
	} {
		set, err := ParseObject([]byte(object))
		if err != nil || set.String() != text {
			t.Errorf("%s: got %q, %v; want %q", object, set, err, text)
		}
	}
}

func TestTheOperatorsSetIsNoScope(t *testing.T) {
	full, err := ParseGrant(Everything)
	if err != nil || !full.Everything() || full.String() != Everything || !full.AllowsType(Jobs, Delete) || full.AllowsWorker(Jobs, Post, "x") {
		t.Errorf("got %v, %v", full, err)
	}
	if set, err := ParseGrant("io.cozy.jobs"); err != nil || set.Everything() || set.Allows(Triggers, Get, Document{}) {
		t.Errorf("got %v, %v", set, err)
	}
	if (Set{}).Allows(Jobs, Get, Document{ID: "a", Worker: "b"}) {
		t.Error("the empty set allows something")
	}
	if jobs, _ := Parse("io.cozy.jobs"); jobs.AllowsType(Jobs, "TRACE") || !jobs.AllowsType(Jobs, "HEAD") {
		t.Error("verbs that are none, and HEAD")
	}
}

func TestTokensExpire(t *testing.T) {
	at := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	if (Token{}).Expired(at) || (Token{Expires: at}).Expired(at.Add(-1)) || !(Token{Expires: at}).Expired(at) {
		t.Error("a token must expire at its time, and only then")
	}
	if (Token{Kind: CLI, Slug: "x"}).CreatedBy() != "CLI" || (Token{Kind: App, Slug: "mail"}).CreatedBy() != "mail" {
		t.Error("who made it")
	}
}

// FuzzParse: no text panics; what is accepted says the same when it is written and read again, and as an object.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "io.cozy.jobs", "io.cozy.jobs:POST:sendmail:worker io.cozy.triggers", "io.cozy.bank.*:GET,POST:a,b", "a:ALL:b:c", "a::b", "*", "a  b", "a:GET:é", "a:GET,ALL",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := Parse(text)
		if err != nil {
			if !errors.Is(err, cron.ErrInvalid) || len(err.Error()) > 2000 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		again, err := Parse(set.String())
		if err != nil || again.String() != set.String() {
			t.Fatalf("%q is written %q and read as %q, %v", text, set, again, err)
		}
		data, err := json.Marshal(set.Rules())
		if err != nil {
			t.Fatal(err)
		}
		object, err := ParseObject(data)
		if len(data) <= MaxText && (err != nil || object.String() != set.String()) {
			t.Fatalf("%q as an object: %v, %v", text, object, err)
		}
		for _, rule := range set.Rules() {
			if slices.Contains(rule.Verbs, All) || !set.Allows(strings.TrimSuffix(rule.Type, ".*"), firstVerb(rule), documentOf(rule)) {
				if rule.Selector == "" || rule.Selector == workerSelector {
					t.Fatalf("%q: the rule %v does not allow what it says", text, rule)
				}
			}
		}
	})
}

func firstVerb(r Rule) string {
	if len(r.Verbs) > 0 {
		return r.Verbs[0]
	}
	return Put
}

func documentOf(r Rule) Document {
	switch {
	case len(r.Values) == 0:
		return Document{}
	case r.Selector == "":
		return Document{ID: r.Values[0]}
	}
	return Document{Worker: r.Values[0]}
}
