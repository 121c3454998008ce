package sendmail

import (
	"encoding/json"
	"maps"
	"net/mail"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNothingGetsIntoTheHeaders(t *testing.T) {
	fresh(t)
	p := open(t, &post{}, "SMTP_")
	const evil = "x\r\nBcc: eve@evil.example"
	to := []Address{{Email: "bob@example.com"}}
	for name, m := range map[string]Message{
		"subject":              {Mode: noreply, Subject: evil, Body: "x"},
		"subject by LF":        {Mode: noreply, Subject: "x\nBcc: eve@evil.example", Body: "x"},
		"name":                 {Mode: fromUser, Subject: "x", Body: "x", To: []Address{{Name: evil, Email: "bob@example.com"}}},
		"address":              {Mode: fromUser, Subject: "x", Body: "x", To: []Address{{Email: "bob@example.com\r\nBcc: eve@evil.example"}}},
		"address with a name":  {Mode: fromUser, Subject: "x", Body: "x", To: []Address{{Email: "Bob <bob@example.com>"}}},
		"two addresses":        {Mode: fromUser, Subject: "x", Body: "x", To: []Address{{Email: "bob@example.com, eve@evil.example"}}},
		"parameter of SMTP":    {Mode: fromUser, Subject: "x", Body: "x", To: []Address{{Email: `"bob> SIZE=1"@example.com`}}},
		"command of SMTP":      {Mode: fromUser, Subject: "x", Body: "x", To: []Address{{Email: "\"bob\r\nDATA\"@example.com"}}},
		"host":                 {Mode: fromUser, Subject: "x", Body: "x", To: []Address{{Email: "bob@[127.0.0.1]"}}},
		"letters":              {Mode: fromUser, Subject: "x", Body: "x", To: []Address{{Email: "bøb@example.com"}}},
		"type of a part":       {Mode: noreply, Subject: "x", Parts: []Part{{Body: "x", Type: "text/plain\r\nBcc: eve@evil.example"}}},
		"charset of a part":    {Mode: noreply, Subject: "x", Parts: []Part{{Body: "x", Type: "text/plain; charset=utf-7"}}},
		"kind of a part":       {Mode: noreply, Subject: "x", Parts: []Part{{Body: "x", Type: "multipart/mixed; boundary=x"}}},
		"name of a file":       {Mode: noreply, Subject: "x", Body: "x", Attachments: []Attachment{{Filename: "x\"\r\nBcc: eve@evil.example"}}},
		"path of a file":       {Mode: noreply, Subject: "x", Body: "x", Attachments: []Attachment{{Filename: "../../x"}}},
		"type of a file":       {Mode: noreply, Subject: "x", Body: "x", Attachments: []Attachment{{Filename: "x", Type: "text/csv\r\nBcc: eve@evil.example"}}},
		"mail as a file":       {Mode: noreply, Subject: "x", Body: "x", Attachments: []Attachment{{Filename: "x", Type: "message/rfc822"}}},
		"value of a template":  {Mode: noreply, TemplateName: "sharing_request", TemplateValues: map[string]string{"SharerPublicName": evil, "Description": "x", "SharingLink": "https://x.example"}},
		"somebody to write to": {Mode: noreply, Subject: "x", Body: "x", To: to},
		"somebody, by support": {Mode: support, Subject: "x", Body: "x", To: to},
		"somebody, campaign":   {Mode: campaign, Subject: "x", Body: "x", To: to},
	} {
		if r, err := Sendmail(during(t, "k"), m); !forGood(err) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if n := len(p.delivered()); n != 0 {
		t.Errorf("%d mails", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions != 0 {
		t.Errorf("the server was asked %d times for what can never be sent", p.sessions)
	}
}

func TestWhatIsNoMailFailsForGood(t *testing.T) {
	fresh(t)
	open(t, &post{}, "SMTP_")
	two := func(a, b string) []Part { return []Part{{Body: "x", Type: a}, {Body: "y", Type: b}} }
	crowd := make([]Address, maxRecipients+1)
	for i := range crowd {
		crowd[i].Email = "bob@example.com"
	}
	for name, m := range map[string]Message{
		"no mode":               {Subject: "x", Body: "x"},
		"a mode of its own":     {Mode: "NoReply", Subject: "x", Body: "x"},
		"no subject":            {Mode: noreply, Subject: " ", Body: "x"},
		"a long subject":        {Mode: noreply, Subject: strings.Repeat("x", maxSubject+1), Body: "x"},
		"no text":               {Mode: noreply, Subject: "x"},
		"an empty part":         {Mode: noreply, Subject: "x", Parts: []Part{{Type: plainText}}},
		"no UTF-8":              {Mode: noreply, Subject: "x", Body: "\xff"},
		"a long text":           {Mode: noreply, Subject: "x", Body: strings.Repeat("x", maxBody+1)},
		"body and parts":        {Mode: noreply, Subject: "x", Body: "x", Parts: two(plainText, htmlText)},
		"an unknown template":   {Mode: noreply, TemplateName: "none"},
		"a template and more":   {Mode: noreply, TemplateName: "new_registration", Subject: "x"},
		"values of no template": {Mode: noreply, Subject: "x", Body: "x", TemplateValues: map[string]string{"a": "b"}},
		"nobody to write to":    {Mode: fromUser, Subject: "x", Body: "x"},
		"a crowd":               {Mode: fromUser, Subject: "x", Body: "x", To: crowd},
		"many files":            {Mode: noreply, Subject: "x", Body: "x", Attachments: slices.Repeat([]Attachment{{Filename: "x"}}, maxFiles+1)},
	} {
		if r, err := Sendmail(during(t, "k"), m); !forGood(err) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

func TestWrongSettingsFailForGood(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"security": {"SMTP_SECURITY": "ssl"}, "port": {"SMTP_PORT": "0"}, "port as a word": {"SMTP_PORT": "smtp"}, "from": {"SMTP_FROM": "nobody"},
		"from with a line": {"SMTP_FROM": "a@b.example\r\nBcc: x@y.example"}, "reply to": {"SMTP_REPLY_TO": "a@b.example, c@d.example"},
		"no support": {"SMTP_SUPPORT_TO": "", "SMTP_REPLY_TO": ""}, "no owner": {"SMTP_OWNER": ""}, "helo": {"SMTP_HELO": "a b"},
		"a user without a password": {"SMTP_SECURITY": "tls", "SMTP_USER": "u"},
	} {
		t.Run(name, func(t *testing.T) {
			fresh(t)
			p := open(t, &post{}, "SMTP_")
			for name, value := range env {
				t.Setenv(name, value)
			}
			if _, err := Sendmail(during(t, "k"), Message{Mode: support, Subject: "x", Body: "x"}); !forGood(err) || len(p.delivered()) > 0 {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestSettingsHaveTheirDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		env     map[string]string
		address string
		is      security
	}{
		"none":                          {nil, "127.0.0.1:25", noTLS},
		"a server":                      {map[string]string{"SMTP_HOST": "mail.example"}, "mail.example:587", startTLS},
		"loopback by name":              {map[string]string{"SMTP_HOST": "localhost"}, "localhost:25", noTLS},
		"loopback of the new kind":      {map[string]string{"SMTP_HOST": "::1"}, "[::1]:25", noTLS},
		"tls":                           {map[string]string{"SMTP_HOST": "mail.example", "SMTP_SECURITY": "tls"}, "mail.example:465", wholeTLS},
		"a port":                        {map[string]string{"SMTP_HOST": "mail.example", "SMTP_PORT": "2525"}, "mail.example:2525", startTLS},
		"a campaign's server is whole":  {map[string]string{"CAMPAIGN_HOST": "news.example", "SMTP_PORT": "2525", "SMTP_USER": "u"}, "news.example:587", startTLS},
		"a campaign's port without one": {map[string]string{"CAMPAIGN_PORT": "1"}, "127.0.0.1:25", noTLS},
	} {
		s, err := serverOf(campaign, func(name string) string { return c.env[name] })
		if err != nil || s.address() != c.address || s.security != c.is || s.user != "" {
			t.Errorf("%s: %s %s, %v", name, s.address(), s.security, err)
		}
	}
}

// Whatever a message says, it is refused, or a mail that has the headers it should have and no others.
func FuzzMail(f *testing.F) {
	for _, seed := range []string{
		`{"mode":"from","to":[{"name":"Bob","email":"bob@example.com"}],"subject":"x","body":"y"}`,
		`{"mode":"support","subject":"  =?utf-8?q?x?=  ü ` + strings.Repeat("long ", 50) + `","body":"a\r\n.\r\nb\n--x"}`,
		`{"mode":"noreply","subject":"x","parts":[{"type":"text/html","body":"<p>"},{"type":"text/plain","body":"\r"}],"attachments":[{"filename":"é;\"","type":"text/csv;a=\"b\\\"\"","content":"AA=="}]}`,
		`{"mode":"campaign","template_name":"sharing_request","template_values":{"SharerPublicName":"B","Description":"D","SharingLink":"https://x.example/"}}`,
	} {
		f.Add(seed)
	}
	address := func(s string) *mail.Address { return &mail.Address{Name: "N", Address: s} }
	set := settings{service: address("s@x.example"), owner: address("o@x.example"), support: address("h@x.example")}
	allowed := []string{"Auto-Submitted", "Content-Transfer-Encoding", "Content-Type", "Date", "From", "Message-Id", "Mime-Version", "Precedence", "Reply-To", "Subject", "To"}
	f.Fuzz(func(t *testing.T, request string) {
		var m Message
		if json.Unmarshal([]byte(request), &m) != nil {
			return
		}
		to, err := addressees(m)
		if err != nil {
			return
		}
		c, err := wording(m)
		if err != nil {
			return
		}
		p, err := between(m.Mode, to, set)
		if err != nil {
			t.Fatal(err)
		}
		h := header{parties: p, id: "<1@x.example>", subject: c.subject, date: time.Unix(0, 0), automatic: true, bulk: true}
		text, err := compose(h, c, m.Attachments)
		if err != nil {
			return
		}
		head, leaves := read(t, string(text))
		for name, values := range head {
			if !slices.Contains(allowed, name) || len(values) != 1 {
				t.Errorf("header %s: %q, of %v", name, values, slices.Sorted(maps.Keys(head)))
			}
		}
		people, err := head.AddressList("To")
		if err != nil || len(people) != len(p.to) {
			t.Fatalf("to %q: %v", head.Get("To"), err)
		}
		for i, a := range people {
			if a.Address != p.to[i].Address {
				t.Errorf("to %q, meant %q", a, p.to[i])
			}
		}
		files := 0
		for _, l := range leaves {
			if l.File != "" {
				files++
			}
		}
		if files != len(m.Attachments) {
			t.Errorf("%d files of %d", files, len(m.Attachments))
		}
		for line := range strings.SplitSeq(string(text), "\r\n") {
			if len(line) > 998 || strings.ContainsAny(line, "\r\n") {
				t.Errorf("line of %d bytes: %.100q", len(line), line)
			}
		}
	})
}
