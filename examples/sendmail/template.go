package sendmail

import (
	"bytes"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"maps"
	"net/url"
	"slices"
	"strings"
	"text/template"
	"unicode"
)

// maxValue bounds one value of a template, in bytes.
const maxValue = 2000

// letter is a mail that is written already but for some values. All of them are needed, and there are no others: a mail
// with holes would be worse than none. Values whose names end in Link are URLs.
type letter struct {
	values  []string
	subject *template.Template
	text    *template.Template
	html    *htmltemplate.Template
}

var letters = map[string]letter{
	"new_registration": newLetter("A new device is connected to your account",
		`Hello,

a new device was connected to your account. You see all of them here:

  {{.DevicesLink}}

If it was not you, remove the device there and change your password.
`,
		`<p>Hello,</p>
<p>a new device was connected to your account. <a href="{{.DevicesLink}}">Here you see all of them.</a></p>
<p>If it was not you, remove the device there and change your password.</p>
`, "DevicesLink"),

	"passphrase_reset": newLetter("Choose a new password",
		`Hello,

somebody, probably you, has forgotten the password of your account. A new one can be chosen here:

  {{.PassphraseResetLink}}

If it was not you, there is nothing to do: the old password goes on to work.
`,
		`<p>Hello,</p>
<p>somebody, probably you, has forgotten the password of your account.
<a href="{{.PassphraseResetLink}}">A new one can be chosen here.</a></p>
<p>If it was not you, there is nothing to do: the old password goes on to work.</p>
`, "PassphraseResetLink"),

	"sharing_request": newLetter("{{.SharerPublicName}} shares something with you",
		`Hello,

{{.SharerPublicName}} shares with you: {{.Description}}

Have a look, and accept it or not:

  {{.SharingLink}}
`,
		`<p>Hello,</p>
<p>{{.SharerPublicName}} shares with you: <em>{{.Description}}</em></p>
<p><a href="{{.SharingLink}}">Have a look, and accept it or not.</a></p>
`, "SharerPublicName", "Description", "SharingLink"),
}

// newLetter panics for texts that are no templates: they are constants.
func newLetter(subject, text, html string, values ...string) letter {
	const strict = "missingkey=error"
	return letter{
		values:  values,
		subject: template.Must(template.New("subject").Option(strict).Parse(subject)),
		text:    template.Must(template.New("text").Option(strict).Parse(text)),
		html:    htmltemplate.Must(htmltemplate.New("html").Option(strict).Parse(html)),
	}
}

// fill writes a template's mail.
func fill(name string, values map[string]string) (content, error) {
	l, known := letters[name]
	if !known {
		return content{}, fmt.Errorf("template_name: %.80q is none of %s", name, strings.Join(slices.Sorted(maps.Keys(letters)), ", "))
	}
	for _, key := range l.values {
		if err := checkValue(key, values[key]); err != nil {
			return content{}, fmt.Errorf("template_values.%s: %w", key, err)
		}
	}
	for key := range values {
		if !slices.Contains(l.values, key) {
			return content{}, fmt.Errorf("template_values: %s has no %.80q, its values are %s", name, key, strings.Join(l.values, ", "))
		}
	}
	var subject, text, html bytes.Buffer
	if err := errors.Join(l.subject.Execute(&subject, values), l.text.Execute(&text, values), l.html.Execute(&html, values)); err != nil {
		return content{}, fmt.Errorf("template_name: %s: %w", name, err)
	}
	return content{subject: subject.String(), parts: []Part{{Body: text.String(), Type: plainText}, {Body: html.String(), Type: htmlText}}}, nil
}

func checkValue(key, value string) error {
	switch {
	case strings.TrimSpace(value) == "":
		return errors.New("it is missing")
	case len(value) > maxValue:
		return fmt.Errorf("%d bytes, at most %d", len(value), maxValue)
	case strings.ContainsFunc(value, unicode.IsControl):
		return errors.New("it has control characters")
	}
	if strings.HasSuffix(key, "Link") {
		u, err := url.Parse(value)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || strings.Contains(value, " ") {
			return fmt.Errorf("%.80q is no URL such as https://ann.example/", value)
		}
	}
	return nil
}
