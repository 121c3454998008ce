package module

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"carillon/backend/core/schema"
)

// The JSON form of the contract's Schema message.
type (
	schemaJSON struct {
		Language string     `json:"language"`
		Module   string     `json:"module"`
		Verbs    []verbJSON `json:"verbs"`
		Data     []dataJSON `json:"data,omitempty"`
	}
	verbJSON struct {
		Name        string      `json:"name"`
		Request     string      `json:"request"`
		Response    string      `json:"response"`
		Cron        *cronJSON   `json:"cron,omitempty"`
		Timeout     string      `json:"timeout,omitempty"`
		Retry       *retryJSON  `json:"retry,omitempty"`
		Concurrency int         `json:"concurrency,omitempty"`
		Unique      *uniqueJSON `json:"unique,omitempty"`
	}
	cronJSON struct {
		Schedule string `json:"schedule"`
		TimeZone string `json:"timeZone,omitempty"`
		Timeout  string `json:"timeout,omitempty"`
		Catchup  string `json:"catchup"`
		Overlap  string `json:"overlap"`
	}
	retryJSON struct {
		Attempts int    `json:"attempts,omitempty"`
		Backoff  string `json:"backoff,omitempty"`
		Ceiling  string `json:"ceiling,omitempty"`
	}
	uniqueJSON struct {
		Window string `json:"window,omitempty"`
	}
	dataJSON struct {
		Name   string      `json:"name"`
		Fields []fieldJSON `json:"fields,omitempty"`
	}
	fieldJSON struct {
		Name     string `json:"name"`
		Type     string `json:"type"`
		Optional bool   `json:"optional,omitempty"`
	}
)

// protoJSON prints a schema as the JSON form of the contract's Schema message, which a runner registers with. It is
// written here by hand, since this room knows the nouns and not the contract; a test holds the two together.
func protoJSON(m schema.Module) (string, error) {
	s := schemaJSON{Language: m.Language, Module: m.Name, Verbs: make([]verbJSON, len(m.Verbs))}
	for i, v := range m.Verbs {
		s.Verbs[i] = verbJSON{Name: v.Name, Request: v.Request, Response: v.Response, Timeout: durationJSON(v.Timeout), Concurrency: v.Concurrency}
		if c := v.Cron; c != nil {
			s.Verbs[i].Cron = &cronJSON{
				Schedule: c.Schedule,
				TimeZone: c.TimeZone,
				Timeout:  durationJSON(c.Timeout),
				Catchup:  "CATCHUP_" + strings.ToUpper(c.Catchup.String()),
				Overlap:  "OVERLAP_" + strings.ToUpper(c.Overlap.String()),
			}
		}
		if r := v.Retry; r != nil {
			s.Verbs[i].Retry = &retryJSON{r.Attempts, durationJSON(r.Backoff), durationJSON(r.Ceiling)}
		}
		if u := v.Unique; u != nil {
			s.Verbs[i].Unique = &uniqueJSON{durationJSON(u.Window)}
		}
	}
	for _, d := range m.Data {
		data := dataJSON{Name: d.Name}
		for _, f := range d.Fields {
			data.Fields = append(data.Fields, fieldJSON(f))
		}
		s.Data = append(s.Data, data)
	}
	text, err := json.Marshal(s)
	return string(text), err
}

// durationJSON prints a duration in seconds, exactly; empty for none.
func durationJSON(d time.Duration) string {
	if d == 0 {
		return ""
	}
	s := fmt.Sprintf("%d.%09d", d/time.Second, d%time.Second)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".") + "s"
}
