package mailroom

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of one mail, in bytes.
const (
	maxSubject = 998 // of one header line
	maxBody    = 256 << 10
)

// compose prints a mail as it travels, without its date and id. What a header could not hold is refused.
func compose(m Mail) ([]byte, error) {
	to, err := mail.ParseAddress(m.To)
	if err != nil {
		return nil, fmt.Errorf("to: %w", err)
	}
	switch {
	case strings.TrimSpace(m.Subject) == "":
		return nil, errors.New("subject: it is empty")
	case len(m.Subject) > maxSubject:
		return nil, fmt.Errorf("subject: %d bytes, at most %d", len(m.Subject), maxSubject)
	case strings.ContainsFunc(m.Subject, unicode.IsControl):
		return nil, errors.New("subject: it has control characters")
	case len(m.Body) > maxBody:
		return nil, fmt.Errorf("body: %d bytes, at most %d", len(m.Body), maxBody)
	case !utf8.ValidString(m.Subject + m.Body):
		return nil, errors.New("subject and body: UTF-8 is needed")
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "To: %s\r\nSubject: %s\r\n", to, mime.QEncoding.Encode("utf-8", m.Subject))
	b.WriteString("MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n")
	w := quotedprintable.NewWriter(&b)
	if _, err := w.Write([]byte(m.Body)); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return b.Bytes(), nil
}

// domain is what follows the @ of the recipient of a mail.
func domain(text []byte) string {
	m, err := mail.ReadMessage(bytes.NewReader(text))
	if err != nil {
		return ""
	}
	to, err := mail.ParseAddress(m.Header.Get("To"))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(to.Address, "@")
	return strings.ToLower(after)
}
