package cozy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/permission"
)

// patience bounds one request, the reading of its body included; a purge of very many jobs may take longer.
const (
	patience      = 20 * time.Second
	purgePatience = 10 * time.Minute
)

// action answers one request of somebody who was let in.
type action func(r *http.Request, by permission.Token) (answer, error)

type methods map[string]action

type route struct {
	pattern  string
	methods  methods
	open     bool          // to anybody; the actions check what there is to check
	patience time.Duration // 0: the usual one
}

// answer is a status with a document; without one the body is empty.
type answer struct {
	status int
	body   any
	plain  bool // application/json instead of JSON:API
}

func (r route) allowed() []string {
	var names []string
	for name := range r.methods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// allow is the header of the same name.
func (r route) allow() string {
	names := append(r.allowed(), http.MethodOptions)
	if r.methods[http.MethodGet] != nil {
		names = append(names, http.MethodHead)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func (s *server) serve(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		defer func() {
			switch cause := recover(); {
			case cause == nil:
			case cause == http.ErrAbortHandler:
				panic(cause)
			default: // that request fails, the controller goes on
				s.fail(w, r, fmt.Errorf("panic: %v\n%s", cause, debug.Stack()))
			}
		}()
		ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(route.patience, patience))
		defer cancel()
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(patience)) // of a real connection
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
		a, err := s.act(w, r, route)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		write(w, a)
	})
}

// act finds the action for a request and lets it in; what it refuses has not been read.
func (s *server) act(w http.ResponseWriter, r *http.Request, route route) (answer, error) {
	if len(route.methods) == 0 {
		return answer{}, notFound("There is no such route")
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	do := route.methods[method]
	switch {
	case method == http.MethodOptions:
		w.Header().Set("Allow", route.allow())
		return answer{status: http.StatusNoContent}, nil
	case do == nil:
		w.Header().Set("Allow", route.allow())
		return answer{}, refuse(http.StatusMethodNotAllowed, r.Method+" is not allowed here")
	case s.House.Draining() && method != http.MethodGet:
		return answer{}, fmt.Errorf("%w: this controller is draining", cron.ErrUnavailable)
	}
	if err := checkQuery(r); err != nil {
		return answer{}, err
	}
	var by permission.Token
	if !route.open {
		var err error
		if by, err = s.authenticate(r); err != nil {
			return answer{}, err
		}
	}
	return do(r, by)
}

// checkQuery refuses a query of which a part would be lost, and texts that SQL cannot take.
func checkQuery(r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse(http.StatusBadRequest, "The query is malformed")
	}
	for name, values := range query {
		if !sane(name) || slices.ContainsFunc(values, func(v string) bool { return !sane(v) }) {
			return &refusal{status: http.StatusBadRequest, detail: "The query is malformed", source: &source{Parameter: cron.SafeText(name)}}
		}
	}
	return nil
}

// authenticate says who asks.
func (s *server) authenticate(r *http.Request) (permission.Token, error) {
	bearer, given := bearerOf(r)
	token, err := s.Tokens.Authenticate(r.Context(), bearer)
	switch {
	case err == nil:
		return token, nil
	case !errors.Is(err, cron.ErrNotFound) && !errors.Is(err, cron.ErrInvalid):
		return token, err
	case !given:
		return token, &refusal{status: http.StatusUnauthorized, detail: "No token in request", challenge: "Bearer"}
	}
	return token, &refusal{status: http.StatusUnauthorized, detail: "The token is invalid or has expired", challenge: `Bearer error="invalid_token"`}
}

// bearerOf reads the token of a request; not given: it has no Authorization at all.
func bearerOf(r *http.Request) (bearer string, given bool) {
	header := r.Header.Get("Authorization")
	scheme, bearer, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", header != ""
	}
	return strings.TrimSpace(bearer), true
}

// write sends an answer.
func write(w http.ResponseWriter, a answer) {
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	if a.plain {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(a.status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // it is no HTML, and links stay readable
	_ = e.Encode(a.body)   // who does not read any more has gone
}

const mediaType = "application/vnd.api+json"
