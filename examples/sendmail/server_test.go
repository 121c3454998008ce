package sendmail

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"carillon"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// delivery is a mail that the server took.
type delivery struct {
	from string
	to   []string
	text string
	user string // who had said a password
	tls  bool
}

// post is a mail server with faults. Its fields are set before it starts; mu guards what follows it.
type post struct {
	secure   *tls.Config // nil: no TLS
	users    map[string]string
	maxBytes int64
	mail     func(nth int, from string) error // what the server says to the sender, to a recipient, to a mail
	rcpt     func(to string) error
	data     func(nth int) error // called when the whole mail is read
	begun    func()              // called before a mail is read

	mu        sync.Mutex
	mails     []delivery
	sessions  int
	datas     int
	passwords int // tries
}

func (p *post) delivered() []delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.mails)
}

// NewSession is the server's: a connection has come.
func (p *post) NewSession(c *smtp.Conn) (smtp.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions++
	return &talk{post: p, conn: c, nth: p.sessions}, nil
}

// talk is one session of a post.
type talk struct {
	post *post
	conn *smtp.Conn
	nth  int
	got  delivery
}

func (s *talk) AuthMechanisms() []string {
	if s.post.users == nil {
		return nil
	}
	return []string{sasl.Plain}
}

func (s *talk) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		s.post.mu.Lock()
		defer s.post.mu.Unlock()
		s.post.passwords++
		if s.post.users[user] != password {
			return smtp.ErrAuthFailed
		}
		s.got.user = user
		return nil
	}), nil
}

func (s *talk) Mail(from string, _ *smtp.MailOptions) error {
	if s.post.users != nil && s.got.user == "" {
		return smtp.ErrAuthRequired
	}
	s.got.from = from
	if s.post.mail != nil {
		return s.post.mail(s.nth, from)
	}
	return nil
}

func (s *talk) Rcpt(to string, _ *smtp.RcptOptions) error {
	if s.post.rcpt != nil {
		if err := s.post.rcpt(to); err != nil {
			return err
		}
	}
	s.got.to = append(s.got.to, to)
	return nil
}

func (s *talk) Data(r io.Reader) error {
	if s.post.begun != nil {
		s.post.begun()
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.post.mu.Lock()
	s.post.datas++
	nth := s.post.datas
	s.post.mu.Unlock()
	if s.post.data != nil {
		if err := s.post.data(nth); err != nil {
			return err
		}
	}
	_, s.got.tls = s.conn.TLSConnectionState()
	s.got.text = string(text)
	s.post.mu.Lock()
	defer s.post.mu.Unlock()
	s.post.mails = append(s.post.mails, s.got)
	return nil
}

func (s *talk) Reset()        { s.got = delivery{user: s.got.user} }
func (s *talk) Logout() error { return nil }

// open starts a post on loopback and has SMTP_HOST and SMTP_PORT say where; prefix is another one than SMTP_.
func open(t *testing.T, p *post, prefix string) *post {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, p, l)
	point(t, prefix, l)
	return p
}

func serve(t *testing.T, p *post, l net.Listener) {
	t.Helper()
	s := smtp.NewServer(p)
	s.Domain, s.TLSConfig, s.MaxMessageBytes = "post.example", p.secure, p.maxBytes
	s.ErrorLog = log.New(io.Discard, "", 0) // connections that the tests cut
	over := make(chan error, 1)
	go func() { over <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		l.Close() // the server may not know it yet
		if err := <-over; err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, smtp.ErrServerClosed) {
			t.Errorf("the server: %v", err)
		}
	})
}

// point has the settings of a prefix name a listener.
func point(t *testing.T, prefix string, l net.Listener) {
	t.Helper()
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(prefix+"HOST", host)
	t.Setenv(prefix+"PORT", port)
}

// fresh takes the settings of this machine away and names the people.
func fresh(t *testing.T) {
	t.Helper()
	for _, prefix := range []string{"SMTP_", "CAMPAIGN_"} {
		for _, name := range []string{"HOST", "PORT", "SECURITY", "CA_FILE", "USER", "PASSWORD_FILE", "HELO", "FROM", "REPLY_TO", "SUPPORT_TO", "OWNER", "OWNERS_FILE"} {
			t.Setenv(prefix+name, "")
		}
	}
	t.Setenv("SMTP_FROM", "The Service <noreply@service.example>")
	t.Setenv("SMTP_REPLY_TO", "answers@service.example")
	t.Setenv("SMTP_SUPPORT_TO", "Support <support@service.example>")
	t.Setenv("SMTP_OWNER", "Änn Owner <ann@{tenant}>")
}

// during is a context of a run.
func during(t *testing.T, key string) context.Context {
	return carillon.WithRun(t.Context(), carillon.Run{ID: "r1", Ref: "sendmail.sendmail", Job: "j1", Tenant: "ann.example", Attempt: 1, IdempotencyKey: key})
}

// certificate is one for 127.0.0.1, and the file of those who trust it.
func certificate(t *testing.T) (*tls.Config, string) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: s.TLS.Certificates}, file
}

// secret is a file with a password.
func secret(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func forGood(err error) bool {
	o, ok := errors.AsType[*carillon.OutcomeError](err)
	return ok && o.Ask == carillon.AskFail
}
