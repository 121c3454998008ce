package cozy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"carillon/backend/core/cron"
	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

// deliverWebhook makes a job of what somebody sends to a trigger's own address. It needs no token: who knows the
// address may. A trigger with a secret has its deliveries signed besides.
func (s *server) deliverWebhook(r *http.Request, _ permission.Token) (answer, error) {
	ctx := r.Context()
	key := r.PathValue("id")
	if !isKey(key) {
		return answer{}, notFound(noTrigger)
	}
	t, err := s.Reader.FindWebhook(ctx, key)
	switch {
	case errors.Is(err, cron.ErrNotFound):
		return answer{}, notFound(noTrigger)
	case err != nil:
		return answer{}, err
	case t.Kind != trigger.Webhook:
		return answer{}, &refusal{status: http.StatusUnprocessableEntity, detail: notAWebhook}
	}
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, trigger.MaxDelivery))
	if err != nil {
		return answer{}, bodyError(err)
	}
	delivery, err := idempotencyKey(r)
	if err != nil {
		return answer{}, err
	}
	manual := r.URL.Query().Get("Manual") == "true" // exactly
	if len(t.Secret) > 0 {
		now, err := s.Reader.Ping(ctx)
		if err != nil {
			return answer{}, err
		}
		if problem := checkSignature(r.Header.Get(signatureHeader), t.Secret, delivery, manual, text, now); problem != "" {
			return answer{}, &refusal{status: http.StatusUnauthorized, detail: problem, source: &source{Header: signatureHeader}}
		}
	}
	payload, err := readPayload(text)
	if err != nil {
		return answer{}, err
	}
	if delivery != "" {
		delivery = nameOf("webhook", key, delivery)
	}
	if err := s.House.DeliverWebhook(ctx, key, payload, manual, delivery); err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, nil
}

// readPayload reads what a webhook gets; nothing at all is no payload.
func readPayload(text []byte) (json.RawMessage, error) {
	if len(text) == 0 {
		return nil, nil
	}
	if !utf8.Valid(text) || !json.Valid(text) {
		return nil, unreadable()
	}
	if err := trigger.FitsDocument(text, 4*trigger.MaxDelivery); err != nil {
		return nil, &refusal{status: http.StatusUnprocessableEntity, detail: "The payload " + err.Error()}
	}
	return text, nil
}

// Signed deliveries: `Carillon-Signature: t=<unix seconds>,v1=<hex of HMAC-SHA256>` over the delivery's id (its
// Idempotency-Key, which has no dots), a dot, the same seconds, a dot and the body as it is sent; before the body of one
// with ?Manual=true stands "Manual=true.", so that nobody on the way adds or drops the flag. Nothing else of a query has an
// effect. Several v1 may stand there while a secret changes.
const (
	signatureHeader = "Carillon-Signature"
	signedManual    = "Manual=true."
	signatureWindow = 5 * time.Minute // before and after now, by the database's clock
	maxSignatures   = 8
)

// checkSignature says what is wrong with the signature of a delivery; empty: nothing. A delivery that is sent again has
// its old id, by which it makes no second job.
func checkSignature(header string, secret []byte, id string, manual bool, text []byte, now time.Time) (problem string) {
	if id == "" || strings.Contains(id, ".") { // a dot would let what is signed be read in two ways
		return "A signed delivery needs an " + idempotencyHeader + " without dots"
	}
	parts := strings.Split(header, ",")
	stamp, ok := strings.CutPrefix(strings.TrimSpace(parts[0]), "t=")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	switch {
	case !ok || err != nil || len(parts) < 2 || len(parts) > 1+maxSignatures:
		return signatureHeader + " is missing or malformed"
	case seconds < now.Add(-signatureWindow).Unix() || seconds > now.Add(signatureWindow).Unix():
		return "The signature is too old, or not of this time"
	}
	mac := hmac.New(sha256.New, secret)
	io.WriteString(mac, id+"."+stamp+".")
	if manual {
		io.WriteString(mac, signedManual)
	}
	mac.Write(text)
	want := mac.Sum(nil)
	valid := false
	for _, part := range parts[1:] {
		digits, ok := strings.CutPrefix(strings.TrimSpace(part), "v1=")
		got, err := hex.DecodeString(digits)
		valid = valid || ok && err == nil && hmac.Equal(got, want)
	}
	if !valid {
		return "The signature is wrong"
	}
	return ""
}

// biEvents are the events of the banking service of which a trigger makes a job, with the member that holds the id of
// the connection.
var biEvents = map[string][]string{
	"CONNECTION_SYNCED": {"connection", "id"}, "CONNECTION_DELETED": {"id"},
	"ACCOUNT_ENABLED": {"id_connection"}, "ACCOUNT_DISABLED": {"id_connection"},
}

const konnectorWorker = "konnector"

// deliverBI makes a job of the konnector trigger whose account, or connection, a banking service tells about. There are
// no accounts here: the trigger's message names its own as account or as connection. The bearer is a token of the tenant
// with the right to launch that trigger.
func (s *server) deliverBI(r *http.Request, by permission.Token) (answer, error) {
	query := r.URL.Query()
	path, known := biEvents[query.Get("event")]
	if !known {
		return answer{}, badParameter("event", "is none of the known events")
	}
	api, err := url.Parse(query.Get("bi_url"))
	if err != nil || api.Scheme != "https" || api.Host == "" {
		return answer{}, badParameter("bi_url", "must be an https URL")
	}
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, trigger.MaxDelivery))
	if err != nil {
		return answer{}, bodyError(err)
	}
	payload, err := readPayload(text)
	if err != nil {
		return answer{}, err
	}
	connection := textAt(payload, path...)
	if connection == "" {
		return answer{}, unreadable()
	}
	t, err := s.findKonnector(r, by, connection)
	if err != nil {
		return answer{}, err
	}
	said, err := json.Marshal(struct {
		Event   string          `json:"event"`
		URL     string          `json:"bi_url"`
		Payload json.RawMessage `json:"payload"`
	}{query.Get("event"), query.Get("bi_url"), payload})
	if err != nil {
		return answer{}, err
	}
	idempotency, err := idempotencyOf(r, by, "bi/"+t.Key)
	if err != nil {
		return answer{}, err
	}
	if _, err := s.House.LaunchTrigger(r.Context(), t.Tenant, t.Key, Launch{Payload: said, Idempotency: idempotency}); err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, nil
}

// findKonnector finds the trigger of a konnector by what its message is about.
func (s *server) findKonnector(r *http.Request, by permission.Token, connection string) (trigger.Trigger, error) {
	may := func(worker string) bool { return by.MayLaunchTrigger(permission.TriggerDoc{Worker: worker}) }
	if !s.any(by, konnectorWorker, "", may) {
		return trigger.Trigger{}, forbidden("The token lacks the right to launch triggers of konnectors")
	}
	workers := []string{konnectorWorker, s.refOf(by, konnectorWorker)}
	t, err := s.Reader.FindTriggerByMessage(r.Context(), by.Tenant, workers, func(message []byte) bool {
		return textAt(message, "account") == connection || textAt(message, "connection") == connection
	})
	if errors.Is(err, cron.ErrNotFound) {
		err = notFound("No trigger and no account match")
	}
	return t, err
}

// textAt is the text or the number at a path of members; empty: there is none.
func textAt(text json.RawMessage, path ...string) string {
	for _, name := range path {
		var members map[string]json.RawMessage
		if json.Unmarshal(text, &members) != nil {
			return ""
		}
		text = members[name]
	}
	var s string
	if json.Unmarshal(text, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(text, &n) == nil {
		return n.String()
	}
	return ""
}
