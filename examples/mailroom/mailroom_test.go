package mailroom

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon"
	"carillon/backend/module"
)

// room is a mailroom of its own, and the run that a context has in it.
func room(t *testing.T, key string) (context.Context, string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("MAILROOM_DIR", dir)
	return carillon.WithRun(t.Context(), carillon.Run{ID: "r1", Ref: "mailroom.sendMail", Job: "j1", Attempt: 1, IdempotencyKey: key}), dir
}

func forGood(err error) bool {
	o := (*carillon.OutcomeError)(nil)
	return errors.As(err, &o) && o.Ask == carillon.AskFail
}

func TestTheModuleIsRead(t *testing.T) {
	src, err := module.Read(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	text := src.Module.Text()
	for _, want := range []string{
		"module mailroom\n",
		"verb sendMail(Mail) Receipt\n  +timeout 30s\n  +retry 5 1s..1m\n",
		"verb archive(Message) Unit\n  +retry 3 500ms\n  +concurrency 2\n",
		"verb count(Day) Summary\n  +timeout 2m0s\n  +unique\n",
		"verb newsletter(Issue) Delivery\n",
		"data Mail {\n  to String\n  subject String\n  body? String\n}\n",
		"  to [String]?\n", "  sent Time\n", "  byDomain? {String: Int}?\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the schema has no %q:\n%s", want, text)
		}
	}
}

func TestAMailIsWrittenOnceForAllAttempts(t *testing.T) {
	ctx, dir := room(t, "key 1")
	m := Mail{To: "Änn <ann@example.com>", Subject: "Grüße", Body: "Long lines, ümlauts\r\nand " + strings.Repeat("more ", 100)}
	var attempts sync.WaitGroup
	receipts := make([]Receipt, 16)
	for i := range receipts {
		attempts.Go(func() {
			var err error
			if receipts[i], err = SendMail(ctx, m); err != nil {
				t.Error(err)
			}
		})
	}
	attempts.Wait()
	first, err := SendMail(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range receipts {
		if r != first {
			t.Errorf("an attempt says %+v, a later one %+v", r, first)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "outbox", "*"))
	if err != nil || len(files) != 1 || files[0] != first.File {
		t.Fatalf("files %v, %v, want %s alone", files, err, first.File)
	}
	f, err := os.Open(first.File)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := mail.ReadMessage(f)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(got.Body))
	if err != nil || string(body) != m.Body {
		t.Errorf("body %q, %v", body, err)
	}
	if s, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject")); err != nil || s != m.Subject {
		t.Errorf("subject %q, %v", s, err)
	}
	if _, err := got.Header.Date(); err != nil {
		t.Errorf("date: %v", err)
	}

	second, err := SendMail(carillon.WithRun(ctx, carillon.Run{Job: "j2", IdempotencyKey: "key 2"}), m)
	if err != nil || second.ID == first.ID {
		t.Errorf("the same mail by another job: %+v, %v", second, err)
	}
}

func TestWhatCanNeverBeMailedFailsForGood(t *testing.T) {
	ctx, dir := room(t, "key")
	for name, m := range map[string]Mail{
		"no address": {Subject: "x"}, "a bad address": {To: "ann", Subject: "x"}, "two addresses": {To: "a@b.c, d@e.f", Subject: "x"},
		"a header in the subject": {To: "a@b.c", Subject: "x\r\nBcc: d@e.f"}, "no subject": {To: "a@b.c", Subject: " "},
		"a header in the address": {To: "a@b.c\r\nBcc: d@e.f", Subject: "x"},
		"a long subject":          {To: "a@b.c", Subject: strings.Repeat("x", maxSubject+1)}, "a long body": {To: "a@b.c", Subject: "x", Body: strings.Repeat("x", maxBody+1)},
		"no UTF-8": {To: "a@b.c", Subject: "x", Body: "\xff"},
	} {
		if r, err := SendMail(ctx, m); !forGood(err) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "outbox", "*")); len(files) > 0 {
		t.Errorf("files %v", files)
	}
	for _, id := range []string{"", "../../etc/passwd", strings.Repeat("A", 32), strings.Repeat("a", 32)} {
		if err := Archive(ctx, Message{ID: id}); !forGood(err) {
			t.Errorf("archive %q: %v", id, err)
		}
	}
	if _, err := Count(ctx, Day{Date: "today"}); !forGood(err) {
		t.Errorf("count of no day: %v", err)
	}
}

func TestAnArchivedMailLeavesTheOutbox(t *testing.T) {
	ctx, dir := room(t, "key")
	r, err := SendMail(ctx, Mail{To: "ann@example.com", Subject: "x", Body: "the body"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second attempt finds it done
		if err := Archive(ctx, Message{ID: r.ID}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(r.File); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mail is still there: %v", err)
	}
	f, err := os.Open(filepath.Join(dir, "archive", r.ID+".eml.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || !strings.Contains(string(text), "the body") {
		t.Errorf("archived %q, %v", text, err)
	}
	// An attempt of the mail that comes late writes it no second time.
	if again, err := SendMail(ctx, Mail{To: "ann@example.com", Subject: "x", Body: "the body"}); err != nil || again.ID != r.ID || again.File == r.File {
		t.Errorf("after the archive: %+v, %v", again, err)
	}
}

func TestCountCountsADay(t *testing.T) {
	ctx, dir := room(t, "")
	for i, to := range []string{"a@example.com", "b@EXAMPLE.com", "c@other.org", "d@other.org"} {
		r, err := SendMail(carillon.WithRun(ctx, carillon.Run{IdempotencyKey: to}), Mail{To: to, Subject: "x"})
		if err != nil {
			t.Fatal(err)
		}
		at := time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC)
		if i == 3 {
			at = at.Add(time.Second)
		}
		if err := os.Chtimes(r.File, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "outbox", "notes.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Count(ctx, Day{Date: "2026-11-21"})
	if err != nil || s.Mails != 3 || s.ByDomain["example.com"] != 2 || s.ByDomain["other.org"] != 1 || s.Bytes == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Count(ended, Day{Date: "2026-11-21"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
