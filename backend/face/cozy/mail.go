package cozy

import (
	"encoding/json"
	"net/http"
	"strconv"

	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

// mailWorker sends mails. What a mail's job is asked for are the members that its modes need.
const mailWorker = "sendmail"

type mail struct {
	Mode    string `json:"mode"`
	Subject string `json:"subject"`
	Body    string `json:"body,omitempty"`
	Parts   []part `json:"parts,omitempty"`
}

type part struct {
	Body string `json:"body"`
	Type string `json:"type"`
}

// maxParts bounds the forms of one mail.
const maxParts = 10

// mailSupport has a mail to the support sent.
func (s *server) mailSupport(r *http.Request, by permission.Token) (answer, error) {
	if !by.MayMailSupport() {
		return answer{}, forbidden("The token lacks the right to write to the support")
	}
	m, err := readMail(r)
	if err != nil {
		return answer{}, err
	}
	if m.Subject == "" || m.Body == "" {
		return answer{}, unreadable()
	}
	return s.send(r, by, mail{Mode: "support", Subject: m.Subject, Body: m.Body})
}

// mailCampaign has a mail to the owner of the tenant sent.
func (s *server) mailCampaign(r *http.Request, by permission.Token) (answer, error) {
	if !by.MayMailCampaign() {
		return answer{}, forbidden("The token lacks the right to send mails")
	}
	m, err := readMail(r)
	if err != nil {
		return answer{}, err
	}
	if m.Subject == "" || len(m.Parts) == 0 {
		return answer{}, unreadable()
	}
	at := pointerAttributes + "/arguments/parts"
	if len(m.Parts) > maxParts {
		return answer{}, invalid(at, "at most 10 parts are accepted")
	}
	for i, p := range m.Parts {
		if p.Type != "text/plain" && p.Type != "text/html" {
			return answer{}, invalid(at+"/"+strconv.Itoa(i)+"/type", "type must be text/plain or text/html")
		}
	}
	return s.send(r, by, mail{Mode: "campaign", Subject: m.Subject, Parts: m.Parts})
}

func readMail(r *http.Request) (m mail, err error) {
	b, err := readBody(r, false)
	if err != nil {
		return m, err
	}
	message, err := trigger.JobMessage(b.fields, b.at())
	if err != nil {
		return m, err
	}
	if message == nil || json.Unmarshal(message, &m) != nil {
		return m, unreadable()
	}
	return m, nil
}

// send pushes the job of a mail.
func (s *server) send(r *http.Request, by permission.Token, m mail) (answer, error) {
	w, err := s.worker(r.Context(), by, mailWorker)
	if err != nil {
		return answer{}, err
	}
	p := push{envelope: envelope{Envelope: trigger.Envelope{Worker: mailWorker, Domain: by.Domain}}}
	if p.message, err = json.Marshal(m); err != nil {
		return answer{}, err
	}
	if p.idempotency, err = idempotencyOf(r, by, m.Mode); err != nil {
		return answer{}, err
	}
	if _, err := s.push(r.Context(), by, w, p); err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, nil
}
