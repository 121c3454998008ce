package cozy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

func sign(secret, id string, at time.Time, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

func TestSignedDeliveries(t *testing.T) {
	const secret, body = "0123456789abcdef", `{"a":1}`
	d := open(t)
	id := d.made(map[string]any{"type": "@webhook", "worker": "print", "secret": secret})
	if a := d.all("GET", "/jobs/triggers/"+id, nil); strings.Contains(a.Text, secret) {
		t.Errorf("shows the secret: %s", a.Text)
	}
	now := d.fake.now
	good := sign(secret, "d1", now, body)
	for _, c := range []struct {
		name, key, signature, body string
		status, jobs               int
	}{
		{"none", "d1", "", body, 401, 0},
		{"no id", "", good, body, 401, 0},
		{"signed without an id", "", sign(secret, "", now, body), body, 401, 0},
		{"another id", "d2", good, body, 401, 0},
		{"another body", "d1", good, `{"a":2}`, 401, 0},
		{"another secret", "d1", sign("fedcba9876543210", "d1", now, body), body, 401, 0},
		{"too old", "d1", sign(secret, "d1", now.Add(-6*time.Minute), body), body, 401, 0},
		{"of tomorrow", "d1", sign(secret, "d1", now.Add(6*time.Minute), body), body, 401, 0},
		{"another time", "d1", strings.Replace(good, fmt.Sprint(now.Unix()), fmt.Sprint(now.Unix()+1), 1), body, 401, 0},
		{"no hex", "d1", fmt.Sprintf("t=%d,v1=zz", now.Unix()), body, 401, 0},
		{"no v1", "d1", fmt.Sprintf("t=%d", now.Unix()), body, 401, 0},
		{"too many", "d1", good + strings.Repeat(",v1=00", 9), body, 401, 0},
		{"signed, no JSON", "d1", sign(secret, "d1", now, "x"), "x", 400, 0},
		{"good", "d1", good, body, 204, 1},
		{"replayed", "d1", good, body, 204, 1},
		{"sent again later", "d1", sign(secret, "d1", now.Add(time.Minute), body), body, 204, 1},
		{"two secrets", "d3", sign("fedcba9876543210", "d3", now, body) + strings.Replace(sign(secret, "d3", now, body), fmt.Sprintf("t=%d", now.Unix()), "", 1), body, 204, 2},
		{"four minutes old", "d4", sign(secret, "d4", now.Add(-4*time.Minute), body), body, 204, 3},
		{"a dot in the id", "d.5", sign(secret, "d.5", now, body), body, 401, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := d.Do(t, "POST", "/jobs/webhooks/"+id, "", c.body, idempotencyHeader, c.key, signatureHeader, c.signature)
			if a.Status != c.status || len(d.fake.jobs) != c.jobs {
				t.Errorf("answered %d with %d jobs, want %d with %d: %s", a.Status, len(d.fake.jobs), c.status, c.jobs, a.Text)
			}
		})
	}
}

// What a delivery asks for stands under its signature, too.
func TestTheSignatureCoversManual(t *testing.T) {
	const secret, body, manual = "0123456789abcdef", `{"a":1}`, "?Manual=true"
	d := open(t)
	id := d.made(map[string]any{"type": "@webhook", "worker": "print", "secret": secret})
	now := d.fake.now
	plain, asked := sign(secret, "d1", now, body), sign(secret, "d1", now, "Manual=true."+body)
	for _, c := range []struct {
		query, key, signature string
		status                int
	}{
		{manual, "d1", plain, 401}, {"", "d1", asked, 401}, {"?Manual=1", "d1", asked, 401}, {manual, "d1", asked, 204},
		{"?Manual=1", "d2", sign(secret, "d2", now, body), 204},
	} {
		a := d.Do(t, "POST", "/jobs/webhooks/"+id+c.query, "", body, idempotencyHeader, c.key, signatureHeader, c.signature)
		d.status(a, c.status)
	}
	list := d.all("GET", "/jobs/triggers/"+id+"/jobs", nil)
	d.is(list, "meta.count", 2.0)
	d.is(list, "data.1.attributes.manual_execution", true)
	d.is(list, "data.0.attributes.manual_execution", nil)
}

func TestWebhooksNeedTheirKeyAlone(t *testing.T) {
	d := open(t)
	id := d.made(map[string]any{"type": "@webhook", "worker": "print", "message": map[string]any{"m": 1}})
	d.status(d.Do(t, "POST", "/jobs/webhooks/"+id, "", `{"account_id":"0672e560"}`), 204)
	d.status(d.Do(t, "POST", "/jobs/webhooks/"+id+"?Manual=true", "", ``), 204)
	list := d.all("GET", "/jobs/triggers/"+id+"/jobs", nil)
	d.is(list, "data.1.attributes.payload.account_id", "0672e560")
	d.is(list, "data.1.attributes.arguments.m", 1.0)
	d.is(list, "data.1.attributes.manual_execution", nil)
	d.is(list, "data.0.attributes.manual_execution", true)
	d.is(list, "data.0.attributes.payload", nil)
	for _, other := range []string{"x", strings.ToUpper(id), id + "0", "bix"} {
		d.status(d.Do(t, "POST", "/jobs/webhooks/"+other, "", `{}`), 404)
	}
	for _, m := range []string{"True", "TRUE", "1", "yes", ""} {
		d.status(d.Do(t, "POST", "/jobs/webhooks/"+id+"?Manual="+m, "", `{}`), 204)
		if envelopeOf(*d.fake.jobs[len(d.fake.jobs)-1]).Manual {
			t.Errorf("Manual=%s is manual", m)
		}
	}
}

func TestBankingWebhooksFindTheirTrigger(t *testing.T) {
	d := open(t)
	id := d.made(map[string]any{"type": "@cron", "arguments": "0 0 0 1 1 *", "worker": "konnector", "message": map[string]any{"konnector": "bank", "account": "acc", "connection": 7}})
	for range 3 {
		d.made(map[string]any{"type": "@webhook", "worker": "konnector", "message": map[string]any{"konnector": "bank", "connection": 8}})
	}
	const synced = "?event=CONNECTION_SYNCED&bi_url=https://bi.example/"
	scope, err := permission.Parse("io.cozy.triggers:POST:konnector:worker")
	if err != nil {
		t.Fatal(err)
	}
	bank := d.Grant(permission.Token{Kind: permission.App, Scope: scope})
	for _, c := range []struct {
		query, token, body string
		status             int
	}{
		{synced, bank, `{"connection":{"id":7}}`, 204},
		{synced, bank, `{"connection":{"id":"acc"}}`, 204},
		{"?event=CONNECTION_DELETED&bi_url=https://bi.example/", bank, `{"id":7}`, 204},
		{"?event=ACCOUNT_ENABLED&bi_url=https://bi.example/", bank, `{"id_connection":7}`, 204},
		{synced, bank, `{"connection":{"id":9}}`, 404},
		{synced, bank, `{"connection":{}}`, 400},
		{synced, bank, `[]`, 400},
		{synced, bank, ``, 400},
		{"?event=PARTY&bi_url=https://bi.example/", bank, `{"id":7}`, 400},
		{"?event=CONNECTION_SYNCED", bank, `{"id":7}`, 400},
		{"?event=CONNECTION_SYNCED&bi_url=file:///etc/passwd", bank, `{"id":7}`, 400},
		{synced, "", `{"connection":{"id":7}}`, 401},
		{synced, d.App("io.cozy.triggers:POST:print:worker"), `{"connection":{"id":7}}`, 403},
	} {
		if a := d.Do(t, "POST", "/jobs/webhooks/bi"+c.query, c.token, c.body); a.Status != c.status {
			t.Errorf("%s %s: %d, want %d: %s", c.query, c.body, a.Status, c.status, a.Text)
		}
	}
	a := d.all("GET", "/jobs/triggers/"+id+"/jobs", nil)
	d.is(a, "meta.count", 4.0)
	d.is(a, "data.3.attributes.payload.event", "CONNECTION_SYNCED")
	d.is(a, "data.3.attributes.payload.bi_url", "https://bi.example/")
	d.is(a, "data.3.attributes.payload.payload.connection.id", 7.0)
	d.is(a, "data.3.attributes.manual_execution", nil)
}

func TestOverTheLimitNothingIsLost(t *testing.T) {
	d := open(t)
	id := d.made(map[string]any{"type": "@client"})
	for range 100 {
		d.status(d.all("POST", "/jobs/triggers/"+id+"/launch", nil), 201)
	}
	a := d.status(d.all("POST", "/jobs/triggers/"+id+"/launch", nil), 429)
	d.is(a, "errors.0.detail", trigger.LimitReached)
	d.status(d.all("GET", "/jobs/triggers/"+id, nil), 200)
	d.fake.mu.Lock()
	d.fake.now = d.fake.now.Add(time.Hour)
	d.fake.mu.Unlock()
	d.status(d.all("POST", "/jobs/triggers/"+id+"/launch", nil), 201)
}
