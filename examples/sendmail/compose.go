package sendmail

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"strings"
	"time"
)

// maxLine is how long a line of a header or of base64 gets, in bytes, where it can be broken.
const maxLine = 76

// header is what stands above a mail.
type header struct {
	parties
	id, subject string
	tenant      string // empty: none
	date        time.Time
	automatic   bool // no person wrote it: nobody's absence shall answer
	bulk        bool
}

// compose prints a mail as it travels.
func compose(h header, c content, files []Attachment) ([]byte, error) {
	if err := checkFiles(files); err != nil {
		return nil, err
	}
	forms := make([]entity, len(c.parts))
	for i, p := range c.parts {
		forms[i] = text(p)
	}
	whole := join("alternative", forms)
	if len(files) > 0 {
		all := []entity{whole}
		for _, f := range files {
			all = append(all, file(f))
		}
		whole = join("mixed", all)
	}
	var b bytes.Buffer
	h.print(&b)
	for _, name := range []string{"Content-Type", "Content-Transfer-Encoding"} {
		if v := whole.head.Get(name); v != "" {
			field(&b, name, v)
		}
	}
	b.WriteString("\r\n")
	b.Write(whole.body)
	return b.Bytes(), nil
}

func (h header) print(b *bytes.Buffer) {
	field(b, "Date", h.date.Format(time.RFC1123Z))
	field(b, "Message-ID", h.id)
	field(b, "From", h.from.String())
	field(b, "To", list(h.to))
	if h.replyTo != nil {
		field(b, "Reply-To", h.replyTo.String())
	}
	field(b, "Subject", mime.QEncoding.Encode("utf-8", h.subject))
	if h.tenant != "" {
		field(b, "X-Carillon-Tenant", mime.QEncoding.Encode("utf-8", h.tenant))
	}
	if h.automatic {
		field(b, "Auto-Submitted", "auto-generated")
	}
	if h.bulk {
		field(b, "Precedence", "bulk")
	}
	field(b, "MIME-Version", "1.0")
}

func list(people []*mail.Address) string {
	texts := make([]string, len(people))
	for i, a := range people {
		texts[i] = a.String()
	}
	return strings.Join(texts, ", ")
}

// field writes one header field. It is broken at blanks that stand alone, as readers drop those at the end of a line.
func field(b *bytes.Buffer, name, value string) {
	b.WriteString(name)
	b.WriteByte(':')
	column := len(name) + 1
	last := ""
	for word := range strings.SplitSeq(value, " ") {
		if last != "" && word != "" && column+1+len(word) > maxLine {
			b.WriteString("\r\n")
			column = 0
		}
		b.WriteByte(' ')
		b.WriteString(word)
		column += 1 + len(word)
		last = word
	}
	b.WriteString("\r\n")
}

// entity is a part of a mail, or all of it.
type entity struct {
	head textproto.MIMEHeader
	body []byte
}

func text(p Part) entity {
	var b bytes.Buffer
	w := quotedprintable.NewWriter(&b)
	w.Write([]byte(p.Body)) // a buffer takes everything
	w.Close()
	head := textproto.MIMEHeader{}
	head.Set("Content-Type", p.Type+"; charset=utf-8")
	head.Set("Content-Transfer-Encoding", "quoted-printable")
	return entity{head, b.Bytes()}
}

func file(f Attachment) entity {
	head := textproto.MIMEHeader{}
	head.Set("Content-Type", fileType(f))
	head.Set("Content-Transfer-Encoding", "base64")
	head.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.Filename}))
	code := base64.StdEncoding.AppendEncode(nil, f.Content)
	var b bytes.Buffer
	for len(code) > 0 {
		n := min(len(code), maxLine)
		b.Write(code[:n])
		b.WriteString("\r\n")
		code = code[n:]
	}
	return entity{head, b.Bytes()}
}

// join makes one entity of several; of one, itself.
func join(kind string, parts []entity) entity {
	if len(parts) == 1 {
		return parts[0]
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		inner, err := w.CreatePart(p.head)
		if err == nil {
			_, err = inner.Write(p.body)
		}
		if err != nil {
			panic(fmt.Sprintf("a buffer refuses: %v", err)) // it cannot
		}
	}
	w.Close()
	head := textproto.MIMEHeader{}
	head.Set("Content-Type", fmt.Sprintf("multipart/%s; boundary=%s", kind, w.Boundary()))
	return entity{head, b.Bytes()}
}
