package sendmail

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon"
	"carillon/backend/core/schema"
	"carillon/backend/module"
)

// leaf is a part of a mail as its reader sees it.
type leaf struct{ Kind, File, Text string }

// read takes a mail apart into its headers and what it holds, in the order of the mail.
func read(t *testing.T, text string) (mail.Header, []leaf) {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatalf("no mail: %v\n%.2000s", err, text)
	}
	return m.Header, leaves(t, m.Header.Get("Content-Type"), m.Header.Get("Content-Transfer-Encoding"), "", m.Body)
}

func leaves(t *testing.T, contentType, encoding, disposition string, r io.Reader) []leaf {
	t.Helper()
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		t.Fatalf("type %q: %v", contentType, err)
	}
	if strings.HasPrefix(kind, "multipart/") {
		var out []leaf
		for parts := multipart.NewReader(r, params["boundary"]); ; {
			p, err := parts.NextRawPart()
			if err == io.EOF {
				return append(append([]leaf{{Kind: kind}}, out...), leaf{Kind: "end"})
			}
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			out = append(out, leaves(t, p.Header.Get("Content-Type"), p.Header.Get("Content-Transfer-Encoding"), p.Header.Get("Content-Disposition"), p)...)
		}
	}
	switch encoding {
	case "quoted-printable":
		r = quotedprintable.NewReader(r)
	case "base64":
		r = base64.NewDecoder(base64.StdEncoding, r)
	default:
		t.Errorf("encoding %q", encoding)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	l := leaf{Kind: kind, Text: strings.ReplaceAll(string(text), "\r\n", "\n")}
	if disposition != "" {
		_, params, err := mime.ParseMediaType(disposition)
		if err != nil {
			t.Errorf("disposition %q: %v", disposition, err)
		}
		l.File = params["filename"]
	}
	return []leaf{l}
}

func decoded(t *testing.T, h mail.Header, name string) string {
	t.Helper()
	s, err := new(mime.WordDecoder).DecodeHeader(h.Get(name))
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return s
}

func TestTheModuleIsRead(t *testing.T) {
	src, err := module.Read(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	text := src.Module.Text()
	for _, want := range []string{
		"module sendmail\n",
		"verb sendmail(Message) Receipt\n  +timeout 1m0s\n  +retry 3 10s\n",
		"  mode String\n", "  template_values? {String: String}?\n", "  content Bytes?\n", "  sent Time\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the schema has no %q:\n%s", want, text)
		}
	}

	verb, _ := src.Module.Verb("sendmail")
	shapes, err := schema.Compile(src.Module)
	if err != nil {
		t.Fatal(err)
	}
	for payload, fits := range map[string]bool{
		`{"mode":"noreply","template_name":"new_registration","template_values":{"DevicesLink":"http://me.cozy.localhost/#/connectedDevices"}}`: true,
		`{"mode":"support","subject":"Cozy is so cool!","body":"I really love Cozy. Thank you so much!"}`:                                       true,
		`{"mode":"campaign","subject":"Checkout","parts":[{"body":"So many new features to check out!","type":"text/plain"}]}`:                  true,
		`{"mode":"from","to":[{"email":"bob@example.com"}],"subject":"x","body":"y","attachments":[{"filename":"a","content":"YQ=="}]}`:         true,
		`{}`:                               false,
		`{"mode":"support","bcc":"x@y.z"}`: false,
		`{"mode":"from","to":"x@y.z"}`:     false,
	} {
		if err := shapes.Check(verb, []byte(payload)); (err == nil) != fits {
			t.Errorf("%s: %v", payload, err)
		}
	}
}

func TestEachModeIsDelivered(t *testing.T) {
	for name, c := range map[string]struct {
		request  string
		from, to string // of the envelope
		headers  map[string]string
		leaves   []leaf
	}{
		"noreply with a template": {
			request: `{"mode":"noreply","template_name":"new_registration","template_values":{"DevicesLink":"http://me.cozy.localhost/?a=1&b=2#/connectedDevices"}}`,
			from:    "noreply@service.example", to: "ann@ann.example",
			headers: map[string]string{
				"From": `"The Service" <noreply@service.example>`, "To": "Änn Owner <ann@ann.example>", "Reply-To": "<answers@service.example>",
				"Subject": "A new device is connected to your account", "Auto-Submitted": "auto-generated", "Precedence": "",
			},
			leaves: []leaf{{Kind: "multipart/alternative"}, {Kind: "text/plain", Text: "\n  http://me.cozy.localhost/?a=1&b=2#/connectedDevices\n"},
				{Kind: "text/html", Text: `<a href="http://me.cozy.localhost/?a=1&amp;b=2#/connectedDevices">`}, {Kind: "end"}},
		},
		"noreply with parts": {
			request: `{"mode":"noreply","subject":"Grüße","parts":[{"body":"<b>hi</b>","type":"text/html; charset=UTF-8"},{"body":"hi","type":"text/plain"}]}`,
			from:    "noreply@service.example", to: "ann@ann.example",
			headers: map[string]string{"Subject": "Grüße"},
			leaves:  []leaf{{Kind: "multipart/alternative"}, {Kind: "text/plain", Text: "hi"}, {Kind: "text/html", Text: "<b>hi</b>"}, {Kind: "end"}},
		},
		"parts of the same type": {
			request: `{"mode":"campaign","subject":"x","parts":[{"body":"one","type":"text/plain"},{"body":"<p>","type":"text/html"},{"body":"","type":"text/html"},{"body":"two","type":"text/plain"}]}`,
			from:    "noreply@service.example", to: "ann@ann.example",
			leaves: []leaf{{Kind: "multipart/alternative"}, {Kind: "text/plain", Text: "one\n\ntwo"}, {Kind: "text/html", Text: "<p>"}, {Kind: "end"}},
		},
		"from the owner to friends": {
			request: `{"mode":"from","to":[{"name":"Bob, \"B\"","email":"bob@example.com"},{"email":"eve@example.org"},{"email":"BOB@example.com"}],"subject":"My files","body":"Look.\n.\nA dot.","attachments":[{"filename":"naïve list.csv","type":"text/csv","content":"YSxiCg=="},{"filename":"x","content":""}]}`,
			from:    "noreply@service.example", to: "bob@example.com eve@example.org",
			headers: map[string]string{
				"From": "Änn Owner <noreply@service.example>", "Reply-To": "Änn Owner <ann@ann.example>", "To": `"Bob, \"B\"" <bob@example.com>, <eve@example.org>`,
				"Auto-Submitted": "",
			},
			leaves: []leaf{{Kind: "multipart/mixed"}, {Kind: "text/plain", Text: "Look.\n.\nA dot."}, {Kind: "text/csv", File: "naïve list.csv", Text: "a,b\n"},
				{Kind: "application/octet-stream", File: "x"}, {Kind: "end"}},
		},
		"support": {
			request: `{"mode":"support","subject":"Cozy is so cool!","body":"I really love Cozy. Thank you so much!"}`,
			from:    "noreply@service.example", to: "support@service.example",
			headers: map[string]string{
				"From": "Änn Owner <noreply@service.example>", "To": `"Support" <support@service.example>`, "Reply-To": "Änn Owner <ann@ann.example>",
				"X-Carillon-Tenant": "ann.example",
			},
			leaves: []leaf{{Kind: "text/plain", Text: "I really love Cozy. Thank you so much!"}},
		},
		"campaign without a server of its own": {
			request: `{"mode":"campaign","subject":"Checkout the new cool stuff!","parts":[{"body":"So many new features to check out!","type":"text/plain"}]}`,
			from:    "noreply@service.example", to: "ann@ann.example",
			headers: map[string]string{"Auto-Submitted": "auto-generated", "Precedence": "bulk"},
			leaves:  []leaf{{Kind: "text/plain", Text: "So many new features to check out!"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fresh(t)
			p := open(t, &post{}, "SMTP_")
			var m Message
			if err := json.Unmarshal([]byte(c.request), &m); err != nil {
				t.Fatal(err)
			}
			began := time.Now().Add(-time.Second)
			r, err := Sendmail(during(t, "key"), m)
			if err != nil {
				t.Fatal(err)
			}
			mails := p.delivered()
			if len(mails) != 1 || mails[0].from != c.from || strings.Join(mails[0].to, " ") != c.to {
				t.Fatalf("delivered %+v", mails)
			}
			if r.Accepted != len(mails[0].to) || len(r.Refused) != 0 || r.Bytes < 100 {
				t.Errorf("receipt %+v", r)
			}
			h, got := read(t, mails[0].text)
			for name, want := range c.headers {
				if got := decoded(t, h, name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			if date, err := h.Date(); err != nil || date.Before(began) {
				t.Errorf("date %v, %v", date, err)
			}
			if id := h.Get("Message-ID"); id != r.MessageID || !strings.HasSuffix(id, "@service.example>") {
				t.Errorf("message id %q, receipt %q", id, r.MessageID)
			}
			if len(got) != len(c.leaves) {
				t.Fatalf("holds %+v", got)
			}
			for i, want := range c.leaves {
				text := strings.TrimSuffix(got[i].Text, "\n") // a mail ends with a line
				excerpt := strings.HasSuffix(name, "a template") && strings.Contains(text, want.Text)
				if got[i].Kind != want.Kind || got[i].File != want.File || !excerpt && text != strings.TrimSuffix(want.Text, "\n") {
					t.Errorf("holds %+v, want %+v", got[i], want)
				}
			}
			for line := range strings.SplitSeq(mails[0].text, "\r\n") {
				if len(line) > 200 || strings.ContainsAny(line, "\r\n") {
					t.Errorf("line %.300q", line)
				}
			}
		})
	}
}

func TestACampaignHasItsOwnServer(t *testing.T) {
	fresh(t)
	secure, ca := certificate(t)
	main := open(t, &post{}, "SMTP_")
	own := open(t, &post{secure: secure, users: map[string]string{"news": "p"}}, "CAMPAIGN_")
	t.Setenv("CAMPAIGN_SECURITY", "starttls")
	t.Setenv("CAMPAIGN_CA_FILE", ca)
	t.Setenv("CAMPAIGN_USER", "news")
	t.Setenv("CAMPAIGN_PASSWORD_FILE", secret(t, "p"))
	t.Setenv("CAMPAIGN_FROM", "News <news@campaign.example>")
	t.Setenv("CAMPAIGN_REPLY_TO", "team@campaign.example")
	if _, err := Sendmail(during(t, "1"), Message{Mode: campaign, Subject: "News", Body: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Sendmail(during(t, "2"), Message{Mode: noreply, Subject: "Not news", Body: "x"}); err != nil {
		t.Fatal(err)
	}
	a, b := own.delivered(), main.delivered()
	if len(a) != 1 || len(b) != 1 || a[0].from != "news@campaign.example" || b[0].from != "noreply@service.example" || a[0].user != "news" {
		t.Fatalf("campaigns %+v, others %+v", a, b)
	}
	if h, _ := read(t, a[0].text); h.Get("Reply-To") != "<team@campaign.example>" {
		t.Errorf("reply to %q", h.Get("Reply-To"))
	}
}

func TestAttemptsOfAJobHaveOneMessageID(t *testing.T) {
	fresh(t)
	p := open(t, &post{}, "SMTP_")
	m := Message{Mode: noreply, Subject: "x", Body: "y"}
	other := carillon.WithRun(t.Context(), carillon.Run{Ref: "sendmail.sendmail", Tenant: "bob.example", IdempotencyKey: "1"})
	var ids []string
	for _, key := range []string{"1", "1", "2"} {
		r, err := Sendmail(during(t, key), m)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.MessageID)
	}
	r, err := Sendmail(other, m)
	if err != nil {
		t.Fatal(err)
	}
	if ids[0] != ids[1] || ids[1] == ids[2] || r.MessageID == ids[0] || len(p.delivered()) != 4 {
		t.Errorf("ids %v, of another tenant %s", ids, r.MessageID)
	}
	if by := p.delivered()[3].to; !slices.Equal(by, []string{"ann@bob.example"}) {
		t.Errorf("another tenant's mail goes to %v", by)
	}
	h := t.Context() // by hand, outside a run
	one, err := Sendmail(h, Message{Mode: noreply, Subject: "x", Body: "y"})
	two, err2 := Sendmail(h, Message{Mode: noreply, Subject: "x", Body: "z"})
	if err != nil || err2 != nil || one.MessageID == two.MessageID {
		t.Errorf("by hand: %v, %v, %v, %v", one.MessageID, two.MessageID, err, err2)
	}
}

func TestALargeAttachmentArrives(t *testing.T) {
	fresh(t)
	p := open(t, &post{}, "SMTP_")
	large := bytes.Repeat([]byte("\r\n.\r\n\x00\xff0123"), maxAttached/11+1)[:maxAttached]
	m := Message{Mode: support, Subject: "The log", Body: "See the file.", Attachments: []Attachment{{Filename: "log.bin", Content: large}}}
	if raw, err := json.Marshal(m); err != nil || len(raw) > 1<<20 {
		t.Fatalf("the largest attachment does not fit into a request: %d bytes, %v", len(raw), err)
	}
	if _, err := Sendmail(during(t, "k"), m); err != nil {
		t.Fatal(err)
	}
	_, got := read(t, p.delivered()[0].text)
	if len(got) != 4 || got[2].File != "log.bin" || got[2].Text != strings.ReplaceAll(string(large), "\r\n", "\n") {
		t.Errorf("%d leaves", len(got))
	}
	m.Attachments = append(m.Attachments, Attachment{Filename: "one", Content: []byte("x")})
	if _, err := Sendmail(during(t, "k"), m); !forGood(err) || len(p.delivered()) != 1 {
		t.Errorf("a byte more: %v", err)
	}
}

func TestOwnersAreFoundByTenant(t *testing.T) {
	fresh(t)
	p := open(t, &post{}, "SMTP_")
	file := filepath.Join(t.TempDir(), "owners")
	text := "# who owns what\n\nann.example.org wrong@example.com\nann.example\tAnn <first@example.com>\nann.example second@example.com\nbad.example nobody\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SMTP_OWNERS_FILE", file)
	t.Setenv("SMTP_OWNER", "")
	m := Message{Mode: noreply, Subject: "x", Body: "y"}
	if _, err := Sendmail(during(t, "k"), m); err != nil {
		t.Fatal(err)
	}
	if got := p.delivered()[0].to; !slices.Equal(got, []string{"first@example.com"}) {
		t.Errorf("the owner is %v", got)
	}
	for _, tenant := range []string{"ann", "bad.example", "#", ""} {
		ctx := carillon.WithRun(t.Context(), carillon.Run{Tenant: tenant, IdempotencyKey: "k"})
		if _, err := Sendmail(ctx, m); !forGood(err) {
			t.Errorf("tenant %q: %v", tenant, err)
		}
	}
	t.Setenv("SMTP_OWNERS_FILE", file+".missing")
	if _, err := Sendmail(during(t, "k"), m); err == nil || forGood(err) {
		t.Errorf("a file that is away for now: %v", err)
	}
	if n := len(p.delivered()); n != 1 {
		t.Errorf("%d mails", n)
	}
}
