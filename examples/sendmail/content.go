package sendmail

import (
	"errors"
	"fmt"
	"mime"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of one mail, in bytes. A request has a megabyte, and base64 makes three bytes four.
const (
	maxSubject  = 900
	maxBody     = 1 << 20 // of all parts
	maxFiles    = 16
	maxAttached = 700 << 10 // of all attachments
	maxFilename = 200
	maxType     = 120
)

// Types of a part.
const (
	plainText = "text/plain"
	htmlText  = "text/html"
)

// content is what a mail says. Its parts, once checked, are alternatives: at most one of each type, the plainest first,
// as readers take the last that they can show.
type content struct {
	subject string
	parts   []Part
}

// wording is what a message says, checked.
func wording(m Message) (content, error) {
	if m.TemplateName != "" {
		if m.Subject != "" || m.Body != "" || len(m.Parts) > 0 {
			return content{}, errors.New("template_name: a template has its own subject and parts")
		}
		c, err := fill(m.TemplateName, m.TemplateValues)
		if err != nil {
			return content{}, err
		}
		err = c.check()
		return c, err
	}
	c := content{subject: m.Subject, parts: m.Parts}
	switch {
	case len(m.TemplateValues) > 0:
		return content{}, errors.New("template_values: there is no template_name")
	case m.Body != "" && len(m.Parts) > 0:
		return content{}, errors.New("body: parts are there, too")
	case m.Body != "":
		c.parts = []Part{{Body: m.Body, Type: plainText}}
	}
	err := c.check()
	return c, err
}

// check says what is wrong, and brings the parts into order. Those of the same type become one: of several alternatives
// only one is seen.
func (c *content) check() error {
	switch {
	case strings.TrimSpace(c.subject) == "":
		return errors.New("subject: it is empty")
	case len(c.subject) > maxSubject:
		return fmt.Errorf("subject: %d bytes, at most %d", len(c.subject), maxSubject)
	case !utf8.ValidString(c.subject) || strings.ContainsFunc(c.subject, unicode.IsControl):
		return errors.New("subject: it has control characters or is no UTF-8")
	case len(c.parts) == 0:
		return errors.New("parts: there is none")
	}
	size := 0
	bodies := map[string][]string{} // by type
	for i, p := range c.parts {
		kind, params, err := mime.ParseMediaType(p.Type)
		charset, named := params["charset"]
		switch {
		case err != nil || kind != plainText && kind != htmlText || named && !strings.EqualFold(charset, "utf-8"):
			return fmt.Errorf("parts[%d].type: %.80q is neither text/plain nor text/html in UTF-8", i, p.Type)
		case !utf8.ValidString(p.Body):
			return fmt.Errorf("parts[%d].body: it is no UTF-8", i)
		}
		size += len(p.Body)
		if strings.TrimSpace(p.Body) != "" {
			bodies[kind] = append(bodies[kind], p.Body)
		}
	}
	switch {
	case size > maxBody:
		return fmt.Errorf("parts: %d bytes, at most %d", size, maxBody)
	case len(bodies) == 0:
		return errors.New("parts: all are empty")
	}
	c.parts = nil
	for _, kind := range []string{plainText, htmlText} {
		if texts := bodies[kind]; len(texts) > 0 {
			c.parts = append(c.parts, Part{Body: strings.Join(texts, "\n\n"), Type: kind})
		}
	}
	return nil
}

// checkFiles says what is wrong with attachments.
func checkFiles(files []Attachment) error {
	if len(files) > maxFiles {
		return fmt.Errorf("attachments: %d, at most %d", len(files), maxFiles)
	}
	size := 0
	for i, f := range files {
		switch {
		case f.Filename == "" || len(f.Filename) > maxFilename || !utf8.ValidString(f.Filename) ||
			strings.ContainsAny(f.Filename, `/\`) || strings.ContainsFunc(f.Filename, unicode.IsControl):
			return fmt.Errorf("attachments[%d].filename: %.80q is no name of a file with 1 to %d bytes", i, f.Filename, maxFilename)
		case fileType(f) == "":
			return fmt.Errorf("attachments[%d].type: %.80q is no type of a file", i, f.Type)
		}
		size += len(f.Content)
	}
	if size > maxAttached {
		return fmt.Errorf("attachments: %d bytes, at most %d", size, maxAttached)
	}
	return nil
}

// fileType is the type of an attachment as a header has it; empty for one that no file can have.
func fileType(f Attachment) string {
	if f.Type == "" {
		return "application/octet-stream"
	}
	kind, params, err := mime.ParseMediaType(f.Type)
	family, sub, _ := strings.Cut(kind, "/")
	if err != nil || len(f.Type) > maxType || sub == "" || family == "multipart" || family == "message" {
		return ""
	}
	return mime.FormatMediaType(kind, params)
}
