// Package mailroom is a module whose verbs take requests: they are done as jobs, which people, applications and other
// verbs enqueue. It writes mail as .eml files into a directory, where a mail server or a person may pick it up.
//
//	carillon jobs enqueue mailroom.sendMail '{"to":"ann@example.com","subject":"Hello","body":"..."}' --wait
//	carillon jobs enqueue mailroom.newsletter '{"subject":"News","body":"...","to":["ann@example.com","bob@example.com"]}'
//	carillon jobs enqueue mailroom.archive '{"id":"<from the receipt>"}'
//	carillon jobs enqueue mailroom.count '{"date":"2026-11-21"}' --wait
//
// A job is done at least once: a run may be lost after its mail was written, and another one follows. So each mail has a
// name that is made of the run's idempotency key, which is the same for every attempt, and is written under that name
// once.
//
// The setting is an environment variable, read at each run: MAILROOM_DIR, a subdirectory of the temporary one by default.
// Mail lies in its directory outbox, what was archived in archive.
package mailroom

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"carillon"
)

// Mail is one message to one person.
type Mail struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
	Body    string `json:"body,omitempty"`
}

// Receipt says where a mail lies.
type Receipt struct {
	ID   string    `json:"id"`
	File string    `json:"file"`
	Sent time.Time `json:"sent"`
}

// SendMail writes a mail, once for all attempts of its job. An address that can never work is no reason to try again.
//
//carillon:verb
//carillon:retry 5 1s..1m
//carillon:timeout 30s
func SendMail(ctx context.Context, m Mail) (Receipt, error) {
	text, err := compose(m)
	if err != nil {
		return Receipt{}, carillon.Fail(err)
	}
	dirs, err := open()
	if err != nil {
		return Receipt{}, err
	}
	key := m.To + "\x00" + m.Subject + "\x00" + m.Body // called by hand: the same mail is sent once
	if run, ok := carillon.RunFrom(ctx); ok {
		key = run.IdempotencyKey
	}
	sum := sha256.Sum256([]byte(key))
	r, err := dirs.put(hex.EncodeToString(sum[:16]), text, time.Now())
	if err != nil {
		return Receipt{}, err
	}
	slog.InfoContext(ctx, "mail written", "id", r.ID, "file", r.File)
	return r, nil
}

// Message names a mail by the id of its receipt.
type Message struct {
	ID string `json:"id"`
}

// Archive compresses a mail and takes it out of the outbox. Compressing costs processor time, so that two at a time are
// enough for the whole cluster.
//
//carillon:verb
//carillon:concurrency 2
//carillon:retry 3 500ms
func Archive(ctx context.Context, m Message) error {
	if !isID(m.ID) {
		return carillon.Fail(fmt.Errorf("%.60q is no id of a mail", m.ID))
	}
	dirs, err := open()
	if err != nil {
		return err
	}
	if err := dirs.archive(m.ID); err != nil {
		return err
	}
	slog.InfoContext(ctx, "mail archived", "id", m.ID)
	return nil
}

// Day is a day in UTC, such as 2026-11-21.
type Day struct {
	Date string `json:"date"`
}

// Summary is what was written on a day and still lies in the outbox.
type Summary struct {
	Mails     int            `json:"mails"`
	Bytes     int64          `json:"bytes"`
	ByDomain  map[string]int `json:"byDomain,omitempty"`
	Truncated bool           `json:"truncated,omitempty"` // there is more than one run counts
}

// Count counts the mail of a day. Reading a full outbox takes a while, so that those who ask for the same day while a
// count is on its way get that one.
//
//carillon:verb
//carillon:unique
//carillon:timeout 2m
func Count(ctx context.Context, d Day) (Summary, error) {
	day, err := time.Parse(time.DateOnly, d.Date)
	if err != nil {
		return Summary{}, carillon.Fail(fmt.Errorf("date %.40q: write it like 2026-11-21", d.Date))
	}
	dirs, err := open()
	if err != nil {
		return Summary{}, err
	}
	return dirs.count(ctx, day)
}

// folders are where the mail lies.
type folders struct{ outbox, archived string }

// open makes the directories that are missing.
func open() (folders, error) {
	dir := cmp.Or(os.Getenv("MAILROOM_DIR"), filepath.Join(os.TempDir(), "carillon-mailroom"))
	f := folders{filepath.Join(dir, "outbox"), filepath.Join(dir, "archive")}
	for _, d := range []string{f.outbox, f.archived} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return f, fmt.Errorf("make the mailroom's directory: %w", err)
		}
	}
	return f, nil
}
