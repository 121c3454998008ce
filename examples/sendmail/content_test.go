package sendmail

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestATemplateIsFilledOrRefused(t *testing.T) {
	c, err := fill("sharing_request", map[string]string{"SharerPublicName": "<b>Bøb</b>", "Description": "A & B", "SharingLink": "https://bob.example/s?x=1"})
	if err != nil {
		t.Fatal(err)
	}
	want := content{subject: "<b>Bøb</b> shares something with you", parts: []Part{{Type: plainText, Body: `Hello,

<b>Bøb</b> shares with you: A & B

Have a look, and accept it or not:

  https://bob.example/s?x=1
`}, {Type: htmlText, Body: `<p>Hello,</p>
<p>&lt;b&gt;Bøb&lt;/b&gt; shares with you: <em>A &amp; B</em></p>
<p><a href="https://bob.example/s?x=1">Have a look, and accept it or not.</a></p>
`}}}
	if d := cmp.Diff(want, c, cmp.AllowUnexported(content{})); d != "" {
		t.Error(d)
	}
	for name, l := range letters {
		values := map[string]string{}
		for _, v := range l.values {
			values[v] = "https://ann.example/" + v
		}
		c, err := fill(name, values)
		if err != nil || c.check() != nil {
			t.Errorf("%s: %v, %v", name, err, c.check())
		}
		for _, v := range l.values {
			for _, p := range c.parts {
				if !strings.Contains(p.Body, "https://ann.example/"+v) {
					t.Errorf("%s: the %s says nothing of %s", name, p.Type, v)
				}
			}
		}
	}
	link := func(v string) map[string]string { return map[string]string{"DevicesLink": v} }
	for _, values := range []map[string]string{
		nil, link(""), link("javascript:alert(1)"), link("//ann.example"), link("https://a.example/\r\nBcc: x"), link("https:///x"), link("https://a.example/ x"),
		link("https://a.example/" + strings.Repeat("x", maxValue)), {"DevicesLink": "https://a.example/", "Other": "x"},
	} {
		if _, err := fill("new_registration", values); err == nil {
			t.Errorf("%v is filled in", values)
		}
	}
}

func TestLongHeadersAreBrokenAndReadWhole(t *testing.T) {
	fresh(t)
	p := open(t, &post{}, "SMTP_")
	for name, subject := range map[string]string{
		"beyond ASCII": strings.Repeat("grüße ", maxSubject/8), "words": strings.Repeat("many  words ", maxSubject/12-1) + "x", "one word": strings.Repeat("x", maxSubject),
	} {
		m := Message{Mode: fromUser, Subject: subject, Body: "x"}
		for i := range maxRecipients {
			m.To = append(m.To, Address{Name: "Friend No. " + strings.Repeat("i", i), Email: strings.Repeat("i", i+1) + "@example.com"})
		}
		if _, err := Sendmail(during(t, name), m); err != nil {
			t.Fatal(name, err)
		}
		all := p.delivered()
		text := all[len(all)-1].text
		h, _ := read(t, text)
		if got := decoded(t, h, "Subject"); got != strings.TrimRight(subject, " ") && got != subject {
			t.Errorf("%s: subject %q", name, got)
		}
		if people, err := h.AddressList("To"); err != nil || len(people) != maxRecipients {
			t.Errorf("%s: to %d, %v", name, len(people), err)
		}
		for line := range strings.SplitSeq(text, "\r\n") {
			if len(line) > 100 && !strings.Contains(line, "xxx") || len(line) > 998 {
				t.Errorf("%s: line of %d bytes: %.200q", name, len(line), line)
			}
		}
	}
}
