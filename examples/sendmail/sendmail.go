// Package sendmail is the worker that sends mail for the Cozy Jobs API, and for whoever else enqueues to it: a module
// with one verb that hands one message to an SMTP server. It knows how a mail is made and how a server is spoken to; who
// may send, how often, and when it is tried again are the cluster's.
//
//	carillon jobs enqueue sendmail.sendmail '{"mode":"noreply","template_name":"new_registration","template_values":{"DevicesLink":"https://ann.example/devices"}}'
//	carillon jobs enqueue sendmail.sendmail '{"mode":"support","subject":"It is so cool!","body":"Thank you."}' --wait
//
// The mode says who writes to whom:
//
//	noreply   the service to the owner of the tenant
//	from      the owner to the people in "to"; answers go to the owner
//	support   the owner to the support
//	campaign  the service to the owner, by a server of its own if there is one
//
// What a mail says is a template with its values, or a subject with a body or with parts, the same text as plain text and
// as HTML. Nobody chooses sender or headers.
//
// A mail that can never be sent, and a server that answers with a permanent error (5xx), fail the job for good. A
// temporary error (4xx), a network that is away and an end of the run are tried again. A job is done at least once: a run
// that is lost between the server's "accepted" and the end of the job is followed by one that sends again. Both mails
// have the same Message-ID, made of the run's idempotency key, by which servers and readers drop the second.
//
// The settings are environment variables, read at each run:
//
//	SMTP_HOST, SMTP_PORT       the server; 127.0.0.1 and the usual port of the security
//	SMTP_SECURITY              starttls (it is demanded), tls (from the first byte) or none; starttls, on loopback none
//	SMTP_CA_FILE               PEM file of the authorities to trust instead of the system's
//	SMTP_USER                  name for AUTH PLAIN, which is never done without TLS
//	SMTP_PASSWORD_FILE         file with its password
//	SMTP_HELO                  name of this host; localhost
//	SMTP_FROM                  the service's address; noreply@localhost
//	SMTP_REPLY_TO              where answers to the service go; nowhere
//	SMTP_SUPPORT_TO            the support's address; SMTP_REPLY_TO
//	SMTP_OWNERS_FILE           file of lines "tenant address": who owns a tenant
//	SMTP_OWNER                 the owner of a tenant that is not in the file, {tenant} in it is replaced
//	CAMPAIGN_HOST, ..          the same for campaigns (PORT, SECURITY, CA_FILE, USER, PASSWORD_FILE, HELO): without
//	                           CAMPAIGN_HOST the server above
//	CAMPAIGN_FROM, CAMPAIGN_REPLY_TO  addresses of campaigns; those above
//
// An address may have a name: Support <support@example.com>.
package sendmail

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"carillon"
)

// Modes of a message.
const (
	noreply  = "noreply"
	fromUser = "from"
	support  = "support"
	campaign = "campaign"
)

// Message is what a job of the worker gets.
type Message struct {
	Mode           string            `json:"mode"`
	To             []Address         `json:"to,omitempty"` // in mode from
	Subject        string            `json:"subject,omitempty"`
	Body           string            `json:"body,omitempty"` // short for one part of plain text
	Parts          []Part            `json:"parts,omitempty"`
	TemplateName   string            `json:"template_name,omitempty"`
	TemplateValues map[string]string `json:"template_values,omitempty"`
	Attachments    []Attachment      `json:"attachments,omitempty"`
}

// Address is a person to write to.
type Address struct {
	Name  string `json:"name,omitempty"`
	Email string `json:"email"`
}

// Part is a piece of what the mail says; its type is text/plain or text/html. Pieces of the same type follow each other,
// and the reader sees one type or the other.
type Part struct {
	Body string `json:"body"`
	Type string `json:"type"`
}

// Attachment is a file that goes along, application/octet-stream if it names no type.
type Attachment struct {
	Filename string `json:"filename"`
	Type     string `json:"type,omitempty"`
	Content  []byte `json:"content"` // base64
}

// Receipt says what the server has taken.
type Receipt struct {
	MessageID string    `json:"message_id"`
	Accepted  int       `json:"accepted"`          // recipients
	Refused   []Refusal `json:"refused,omitempty"` // recipients whom the server will never take
	Bytes     int       `json:"bytes"`
	Sent      time.Time `json:"sent"`
}

// Refusal is a recipient with the server's reason.
type Refusal struct {
	Email  string `json:"email"`
	Reason string `json:"reason"`
}

// maxSession bounds one try by itself, for those who call the verb by hand. A job's run has its own timeout.
const maxSession = time.Minute

// Sendmail hands one message to the mail server.
//
//carillon:verb
//carillon:retry 3 10s
//carillon:timeout 60s
func Sendmail(ctx context.Context, m Message) (Receipt, error) {
	run, _ := carillon.RunFrom(ctx)
	to, err := addressees(m)
	if err != nil {
		return Receipt{}, carillon.Fail(err)
	}
	text, err := wording(m)
	if err != nil {
		return Receipt{}, carillon.Fail(err)
	}
	set, err := settle(m.Mode, cmp.Or(run.Tenant, "default"), os.Getenv)
	if err != nil {
		return Receipt{}, err
	}
	people, err := between(m.Mode, to, set)
	if err != nil {
		return Receipt{}, carillon.Fail(err)
	}
	now := time.Now().UTC()
	head := header{
		parties: people, id: messageID(run, m, people.sender()), subject: text.subject, date: now,
		tenant: run.Tenant, automatic: m.Mode == noreply || m.Mode == campaign, bulk: m.Mode == campaign,
	}
	mail, err := compose(head, text, m.Attachments)
	if err != nil {
		return Receipt{}, carillon.Fail(err)
	}
	ctx, stop := context.WithTimeout(ctx, maxSession)
	defer stop()
	refused, err := set.server.send(ctx, people.sender(), people.recipients(), mail)
	if err != nil {
		return Receipt{}, fmt.Errorf("send by %s: %w", set.server.address(), err)
	}
	r := Receipt{MessageID: head.id, Accepted: len(people.to) - len(refused), Refused: refused, Bytes: len(mail), Sent: now}
	slog.InfoContext(ctx, "mail sent", "mode", m.Mode, "message_id", r.MessageID, "recipients", r.Accepted, "refused", len(refused), "bytes", r.Bytes)
	return r, nil
}

// messageID is the same for all attempts of a job. Called by hand, it is the same for the same message.
func messageID(run carillon.Run, m Message, sender string) string {
	key := run.Tenant + "\x00" + run.Ref + "\x00" + run.IdempotencyKey
	if run.IdempotencyKey == "" {
		raw, _ := json.Marshal(m) // strings and bytes alone: it cannot fail
		key = string(raw)
	}
	sum := sha256.Sum256([]byte(key))
	return "<" + hex.EncodeToString(sum[:16]) + "@" + domain(sender) + ">"
}
