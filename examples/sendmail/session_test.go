package sendmail

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
)

func answer(code int, text string) *smtp.SMTPError {
	return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 0, 0}, Message: text}
}

var plain = Message{Mode: noreply, Subject: "Hello", Body: "How are you?"}

func TestATemporaryErrorIsTriedAgain(t *testing.T) {
	for name, p := range map[string]*post{
		"of the sender": {mail: func(nth int, _ string) error {
			if nth == 1 {
				return answer(451, "come back")
			}
			return nil
		}},
		"of the mail": {data: func(nth int) error {
			if nth == 1 {
				return answer(452, "come back")
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fresh(t)
			open(t, p, "SMTP_")
			_, err := Sendmail(during(t, "k"), plain)
			if err == nil || forGood(err) || !strings.Contains(err.Error(), "come back") {
				t.Fatalf("the first try: %v", err)
			}
			if n := len(p.delivered()); n != 0 {
				t.Fatalf("%d mails after the first try", n)
			}
			if _, err := Sendmail(during(t, "k"), plain); err != nil {
				t.Fatalf("the second try: %v", err)
			}
			if n := len(p.delivered()); n != 1 {
				t.Errorf("%d mails", n)
			}
		})
	}
}

func TestAPermanentErrorFailsForGood(t *testing.T) {
	for name, c := range map[string]struct {
		post *post
		says string
	}{
		"of the sender":    {&post{mail: func(int, string) error { return answer(550, "not you") }}, "the sender: 550 5.0.0 not you"},
		"of the recipient": {&post{rcpt: func(string) error { return answer(550, "nobody here") }}, "the recipient ann@ann.example: 550 5.0.0 nobody here"},
		"of the mail":      {&post{data: func(int) error { return answer(554, "spam") }}, "the mail: 554 5.0.0 spam"},
		"of its size":      {&post{maxBytes: 100}, "552"},
		"a long answer":    {&post{data: func(int) error { return answer(554, "spam\x07"+strings.Repeat("é", 800)) }}, "spam \u00e9"},
	} {
		t.Run(name, func(t *testing.T) {
			fresh(t)
			open(t, c.post, "SMTP_")
			_, err := Sendmail(during(t, "k"), plain)
			if !forGood(err) || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 700 {
				t.Errorf("%v", err)
			}
			if n := len(c.post.delivered()); n != 0 {
				t.Errorf("%d mails", n)
			}
		})
	}
}

func TestARefusedRecipientDoesNotKeepTheOthersFromTheirMail(t *testing.T) {
	fresh(t)
	var busy sync.Map
	busy.Store("eve@example.com", true)
	p := open(t, &post{rcpt: func(to string) error {
		if _, is := busy.Load(to); is {
			return answer(450, "mailbox busy")
		}
		if strings.HasPrefix(to, "gone") {
			return answer(550, "no such user")
		}
		return nil
	}}, "SMTP_")
	m := Message{Mode: fromUser, Subject: "x", Body: "y", To: []Address{{Email: "gone@example.com"}, {Email: "bob@example.com"}, {Email: "eve@example.com"}}}
	if _, err := Sendmail(during(t, "k"), m); err == nil || forGood(err) {
		t.Errorf("while one is busy: %v", err)
	}
	if n := len(p.delivered()); n != 0 {
		t.Fatalf("%d mails while one is busy", n)
	}
	busy.Clear()
	r, err := Sendmail(during(t, "k"), m)
	if err != nil {
		t.Fatal(err)
	}
	if r.Accepted != 2 || len(r.Refused) != 1 || r.Refused[0] != (Refusal{"gone@example.com", "550 5.0.0 no such user"}) {
		t.Errorf("receipt %+v", r)
	}
	if got := strings.Join(p.delivered()[0].to, " "); got != "bob@example.com eve@example.com" {
		t.Errorf("delivered to %s", got)
	}
	m.To = m.To[:1]
	if _, err := Sendmail(during(t, "k"), m); !forGood(err) {
		t.Errorf("nobody is left: %v", err)
	}
}

func TestStartTLSIsDemanded(t *testing.T) {
	fresh(t)
	p := open(t, &post{}, "SMTP_") // offers none
	t.Setenv("SMTP_SECURITY", "starttls")
	if _, err := Sendmail(during(t, "k"), plain); !forGood(err) || !strings.Contains(err.Error(), "STARTTLS") {
		t.Errorf("a server without it: %v", err)
	}
	if n := len(p.delivered()); n != 0 {
		t.Fatalf("%d mails in clear text", n)
	}
	secure, ca := certificate(t)
	p = open(t, &post{secure: secure}, "SMTP_")
	if _, err := Sendmail(during(t, "k"), plain); err == nil || forGood(err) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate of nobody: %v", err)
	}
	if n := len(p.delivered()); n != 0 {
		t.Fatalf("%d mails to a server that may be any", n)
	}
	t.Setenv("SMTP_CA_FILE", ca)
	if _, err := Sendmail(during(t, "k"), plain); err != nil {
		t.Fatal(err)
	}
	if got := p.delivered(); len(got) != 1 || !got[0].tls {
		t.Errorf("delivered %+v", got)
	}
}

func TestTLSFromTheFirstByte(t *testing.T) {
	fresh(t)
	secure, ca := certificate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &post{users: map[string]string{"u": "p"}}
	serve(t, p, tls.NewListener(l, secure))
	point(t, "SMTP_", l)
	t.Setenv("SMTP_SECURITY", "tls")
	t.Setenv("SMTP_CA_FILE", ca)
	t.Setenv("SMTP_USER", "u")
	t.Setenv("SMTP_PASSWORD_FILE", secret(t, "p"))
	if _, err := Sendmail(during(t, "k"), plain); err != nil {
		t.Fatal(err)
	}
	if got := p.delivered(); len(got) != 1 || !got[0].tls || got[0].user != "u" {
		t.Errorf("delivered %+v", got)
	}
}

func TestPasswordsTravelByTLSAlone(t *testing.T) {
	secure, ca := certificate(t)
	set := func(t *testing.T, security, user, password string) {
		t.Setenv("SMTP_SECURITY", security)
		t.Setenv("SMTP_CA_FILE", ca)
		t.Setenv("SMTP_USER", user)
		t.Setenv("SMTP_PASSWORD_FILE", secret(t, password))
	}
	t.Run("a right one", func(t *testing.T) {
		fresh(t)
		p := open(t, &post{secure: secure, users: map[string]string{"carl": "s3 cret"}}, "SMTP_")
		set(t, "starttls", "carl", "s3 cret")
		if _, err := Sendmail(during(t, "k"), plain); err != nil {
			t.Fatal(err)
		}
		if got := p.delivered(); len(got) != 1 || got[0].user != "carl" || !got[0].tls {
			t.Errorf("delivered %+v", got)
		}
	})
	t.Run("a wrong one", func(t *testing.T) {
		fresh(t)
		p := open(t, &post{secure: secure, users: map[string]string{"carl": "s3 cret"}}, "SMTP_")
		set(t, "starttls", "carl", "wr0ng")
		_, err := Sendmail(during(t, "k"), plain)
		if !forGood(err) || !strings.Contains(err.Error(), "535") || strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("%v", err)
		}
		if len(p.delivered()) != 0 {
			t.Error("it is delivered")
		}
	})
	t.Run("without TLS", func(t *testing.T) {
		fresh(t)
		p := open(t, &post{users: map[string]string{"carl": "s3 cret"}}, "SMTP_")
		for _, security := range []string{"none", "", "starttls"} {
			set(t, security, "carl", "s3 cret")
			if _, err := Sendmail(during(t, "k"), plain); !forGood(err) {
				t.Errorf("security %q: %v", security, err)
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.passwords > 0 || len(p.mails) > 0 {
			t.Errorf("%d passwords said, mails %v", p.passwords, p.mails)
		}
	})
	t.Run("a server that asks for none", func(t *testing.T) {
		fresh(t)
		open(t, &post{secure: secure}, "SMTP_")
		set(t, "starttls", "carl", "s3 cret")
		if _, err := Sendmail(during(t, "k"), plain); !forGood(err) || !strings.Contains(err.Error(), "AUTH") {
			t.Errorf("%v", err)
		}
	})
}

func TestACancelledSessionEndsAtOnce(t *testing.T) {
	for name, how := range map[string]struct {
		deadline bool
		begun    bool // the server has not read the mail; otherwise it has and says nothing
	}{"before the mail is read": {begun: true}, "while the answer is awaited": {}, "by the end of its time": {deadline: true}} {
		t.Run(name, func(t *testing.T) {
			fresh(t)
			ctx, cancel := context.WithCancelCause(during(t, "k"))
			defer cancel(nil)
			reason := errors.New("the runner stops")
			if how.deadline {
				var stop context.CancelFunc
				ctx, stop = context.WithTimeout(ctx, 100*time.Millisecond)
				defer stop()
				reason = context.DeadlineExceeded
			}
			free := make(chan struct{})
			wait := func() {
				if !how.deadline {
					cancel(reason)
				}
				<-free
			}
			p := &post{}
			if how.begun {
				p.begun = wait
			} else {
				p.data = func(int) error { wait(); return answer(554, "late") }
			}
			open(t, p, "SMTP_")
			t.Cleanup(func() { close(free) }) // before the server is closed
			if _, err := Sendmail(ctx, plain); !errors.Is(err, reason) || forGood(err) {
				t.Errorf("%v", err)
			}
		})
	}
}

// script is a server that says given lines, whatever it hears, and then is silent. Its first line is the greeting; an
// empty one is an end of the connection.
func script(t *testing.T, lines ...string) (heard func() string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	point(t, "SMTP_", l)
	var text strings.Builder
	over := make(chan struct{})
	go func() {
		defer close(over)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		for _, line := range lines {
			if line == "" {
				return
			}
			if _, err := io.WriteString(c, line+"\r\n"); err != nil {
				return
			}
			said, err := r.ReadString('\n')
			if err != nil {
				return
			}
			text.WriteString(said)
			for strings.HasPrefix(line, "354") && said != ".\r\n" {
				if said, err = r.ReadString('\n'); err != nil {
					return
				}
				text.WriteString(said)
			}
		}
		io.Copy(io.Discard, r) // until the other end goes
	}()
	t.Cleanup(func() { l.Close(); <-over })
	return func() string { l.Close(); <-over; return text.String() }
}

func TestAnOddServer(t *testing.T) {
	good := []string{"220 hi", "250 hi", "250 ok", "250 ok", "354 go", "250 taken"}
	for name, c := range map[string]struct {
		lines []string
		good  bool // the job is done
		final bool // the job fails for good
	}{
		"one that goes without a goodbye":     {append(good[:6:6], ""), true, false},
		"one that is silent in the end":       {good, true, false},
		"one that is full":                    {[]string{"421 too many"}, false, false},
		"one that serves nobody":              {[]string{"554 no mail here"}, false, true},
		"one without EHLO":                    {append([]string{"220 hi", "502 what"}, append(good[1:6:6], "")...), true, false},
		"one that goes away":                  {[]string{"220 hi", "250 hi", ""}, false, false},
		"one that goes away during a mail":    {append(good[:5:5], ""), false, false},
		"one that speaks no SMTP":             {[]string{"HTTP/1.1 400 Bad Request"}, false, false},
		"one that goes on when it should not": {[]string{"220 hi", "250 hi", "250 ok", "250 ok", "250 go"}, false, false},
		"one that never ends":                 {[]string{"220-" + strings.Repeat("talk ", maxHeard)}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			fresh(t)
			heard := script(t, c.lines...)
			began := time.Now()
			_, err := Sendmail(during(t, "k"), plain)
			if took := time.Since(began); (err == nil) != c.good || forGood(err) != c.final || took > maxSession/4 {
				t.Errorf("%v after %v", err, took)
			}
			if s := heard(); !c.good && strings.HasSuffix(s, "\r\n.\r\n") && !strings.Contains(name, "during a mail") {
				t.Errorf("it heard a mail: %.300q", s)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		fresh(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		point(t, "SMTP_", l)
		l.Close()
		if _, err := Sendmail(during(t, "k"), plain); err == nil || forGood(err) || !strings.Contains(err.Error(), fmt.Sprint("send by ", l.Addr())) {
			t.Errorf("%v", err)
		}
	})
}
