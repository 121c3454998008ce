package cozy

import (
	"encoding/json"
	"net/http"
	"time"

	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

type triggerAttributes struct {
	Domain    string          `json:"domain,omitempty"`
	Type      string          `json:"type"`
	Arguments string          `json:"arguments"`
	TimeZone  string          `json:"time_zone,omitempty"`
	Debounce  string          `json:"debounce"`
	Worker    string          `json:"worker"`
	Message   json.RawMessage `json:"message"`
	Options   options         `json:"options"`
	State     *trigger.State  `json:"current_state,omitempty"`
	Metadata  metadata        `json:"cozyMetadata"`
}

type metadata struct {
	DoctypeVersion string     `json:"doctypeVersion"`
	CreatedAt      *time.Time `json:"createdAt,omitempty"`
	CreatedByApp   string     `json:"createdByApp,omitempty"`
	UpdatedAt      *time.Time `json:"updatedAt,omitempty"`
}

// launcherAttributes are those of the early document.
type launcherAttributes struct {
	Type      string  `json:"type"`
	Arguments string  `json:"arguments"`
	Worker    string  `json:"worker"`
	Options   options `json:"options"`
}

// triggerResource shows a trigger; legacy, as a launcher.
func triggerResource(r *http.Request, t trigger.Trigger, by permission.Token, state trigger.State, legacy bool) resource {
	rev := revision(t.Rev, t.Key, t.Rev, t.UpdatedAt.UnixMicro())
	shown := showOptions(t.Options, trigger.Terms{Priority: t.Priority, Timeout: t.Timeout, Retry: t.Retry}, legacy, t.Message)
	if legacy {
		return resource{
			Type: typeLauncher, ID: t.Key, Rev: rev, Meta: &meta{rev}, Links: links{Self: "/jobs/launchers/" + t.Key},
			Attributes: launcherAttributes{Type: kindName(t.Kind, true), Arguments: t.Arguments, Worker: t.Worker, Options: shown},
		}
	}
	domain := domainOf(t.Domain, by, t.Tenant)
	out := resource{Type: typeTrigger, ID: t.Key, Meta: &meta{rev}, Links: links{Self: "/jobs/triggers/" + t.Key}}
	if t.Kind == trigger.Webhook {
		out.Links.Webhook = webhookOf(r, t, by)
	}
	out.Attributes = triggerAttributes{
		Domain: domain, Type: string(t.Kind), Arguments: t.Arguments, TimeZone: t.TimeZone, Debounce: t.Debounce, Worker: t.Worker,
		Message: value(t.Message, "null"), Options: shown, State: &state,
		Metadata: metadata{"1", when(t.CreatedAt), t.CreatedBy, when(t.UpdatedAt)},
	}
	return out
}

// webhookOf is where deliveries to a trigger go: to its domain, or where there is none, to where this was asked.
func webhookOf(r *http.Request, t trigger.Trigger, by permission.Token) string {
	host := r.Host
	for _, domain := range []string{by.Domain, t.Domain} {
		if domain != "" {
			host = domain
		}
	}
	return "https://" + host + "/jobs/webhooks/" + t.Key
}
