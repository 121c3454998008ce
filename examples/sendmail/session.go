package sendmail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/smtp"
	"net/textproto"
	"strconv"
	"strings"
	"time"
	"unicode"

	"carillon"
)

// security is how a connection is made safe.
type security string

const (
	startTLS security = "starttls"
	wholeTLS security = "tls"
	noTLS    security = "none"
)

// server is where mail is handed in, and how.
type server struct {
	host, helo     string
	port           int
	security       security
	roots          *x509.CertPool // nil: the system's
	user, password string         // without a user: no AUTH
}

// maxGoodbye is how long a session waits for the end that it does not need.
const maxGoodbye = time.Second

// Bounds of what a server says, in bytes.
const (
	maxHeard = 256 << 10 // in one session, TLS included
	maxReply = 500       // of an answer in an error
)

func (s server) address() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

// send hands a mail in for all recipients at once and returns those whom the server refuses for good, unless these are
// all. When one cannot be taken now, nobody gets the mail before the next try. After a permanent answer the job fails for
// good. After an error that came while the server's last answer was awaited, the server may have the mail or not.
func (s server) send(ctx context.Context, from string, to []string, mail []byte) ([]Refusal, error) {
	refused, err := s.session(ctx, from, to, mail)
	var no *reply
	switch {
	case err == nil:
		return refused, nil
	case errors.As(err, &no) && no.permanent():
		return nil, carillon.Fail(err)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return nil, err
}

func (s server) session(ctx context.Context, from string, to []string, mail []byte) ([]Refusal, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.address())
	if err != nil {
		return nil, err
	}
	defer conn.Close() // nothing is flushed by it: a mail that is not complete stays so
	// Whatever waits for the server is woken when the context ends.
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	c, err := s.greet(&listener{Conn: conn, left: maxHeard})
	if err != nil {
		return nil, err
	}
	if err := c.Mail(from); err != nil {
		return nil, said("the sender", err)
	}
	refused, err := recipients(c, to)
	if err != nil {
		return nil, err
	}
	w, err := c.Data()
	if err != nil {
		return nil, said("DATA", err)
	}
	if _, err := w.Write(mail); err != nil {
		return nil, fmt.Errorf("the mail: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, said("the mail", err)
	}
	// The server has the mail, whatever it says now, or does not say.
	conn.SetDeadline(time.Now().Add(maxGoodbye))
	c.Quit()
	return refused, nil
}

// greet brings a connection to where mail can be handed in.
func (s server) greet(conn net.Conn) (*smtp.Client, error) {
	secure := &tls.Config{ServerName: s.host, RootCAs: s.roots, MinVersion: tls.VersionTLS12}
	if s.security == wholeTLS {
		conn = tls.Client(conn, secure)
	}
	c, err := smtp.NewClient(conn, s.host)
	if err != nil {
		return nil, said("the greeting", err)
	}
	if err := c.Hello(s.helo); err != nil {
		return nil, said("HELO", err)
	}
	if s.security == startTLS {
		if ok, _ := c.Extension("STARTTLS"); !ok {
			return nil, carillon.Fail(errors.New("the server offers no STARTTLS, and without it nothing is sent (SMTP_SECURITY)"))
		}
		if err := c.StartTLS(secure); err != nil {
			return nil, said("STARTTLS", err)
		}
	}
	if s.user == "" {
		return c, nil
	}
	if _, encrypted := c.TLSConnectionState(); !encrypted {
		return nil, carillon.Fail(errors.New("AUTH without TLS is not done"))
	}
	if _, kinds := c.Extension("AUTH"); !containsWord(kinds, "PLAIN") {
		return nil, carillon.Fail(errors.New("the server offers no AUTH PLAIN"))
	}
	if err := c.Auth(smtp.PlainAuth("", s.user, s.password, s.host)); err != nil {
		return nil, said("AUTH", err)
	}
	return c, nil
}

// recipients names them to the server.
func recipients(c *smtp.Client, to []string) (refused []Refusal, err error) {
	for _, address := range to {
		err := c.Rcpt(address)
		if err == nil {
			continue
		}
		err = said("the recipient "+address, err)
		no, ok := errors.AsType[*reply](err)
		if !ok || !no.permanent() {
			return nil, err
		}
		if refused = append(refused, Refusal{Email: address, Reason: no.Error()}); len(refused) == len(to) {
			return nil, err
		}
	}
	return refused, nil
}

// reply is an answer that is not the one hoped for.
type reply struct {
	code int
	text string // cut, and without control characters
}

func (r *reply) Error() string { return fmt.Sprintf("%d %s", r.code, r.text) }

func (r *reply) permanent() bool { return r.code >= 500 && r.code < 600 }

// said is an error at a step of a session.
func said(step string, err error) error {
	if answer, ok := errors.AsType[*textproto.Error](err); ok {
		err = &reply{code: answer.Code, text: clean(answer.Msg)}
	}
	return fmt.Errorf("%s: %w", step, err)
}

func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxReply {
		text = strings.ToValidUTF8(text[:maxReply], "") + ".."
	}
	return text
}

func containsWord(text, word string) bool {
	for w := range strings.FieldsSeq(text) {
		if strings.EqualFold(w, word) {
			return true
		}
	}
	return false
}

// listener is a connection whose other end may say so much and no more.
type listener struct {
	net.Conn
	left int
}

var errTalkative = errors.New("the server says more than a mail server has to say")

func (l *listener) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTalkative
	}
	n, err := l.Conn.Read(b[:min(len(b), l.left)])
	l.left -= n
	return n, err
}
