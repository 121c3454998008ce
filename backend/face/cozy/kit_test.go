package cozy

import (
	"testing"

	"carillon/integration/cozycases"
)

// desk asks in the name of one tenant.
type desk struct {
	cozycases.Home
	*fake
	t *testing.T
}

func open(t *testing.T) desk {
	f, w := world(t)
	return desk{w.Home(t), f, t}
}

func attributes(of any) any { return map[string]any{"data": map[string]any{"attributes": of}} }

// all asks with the token that may do everything.
func (d desk) all(method, path string, body any, header ...string) cozycases.Answer {
	d.t.Helper()
	return d.Do(d.t, method, path, d.All, body, header...)
}

// made creates a trigger and returns its id.
func (d desk) made(members map[string]any) string {
	d.t.Helper()
	a := d.all("POST", "/jobs/triggers", attributes(members))
	if a.Status != 201 {
		d.t.Fatalf("create a trigger: %d %s", a.Status, a.Text)
	}
	return a.ID()
}

// status demands one.
func (d desk) status(a cozycases.Answer, want int) cozycases.Answer {
	d.t.Helper()
	if a.Status != want {
		d.t.Errorf("answered %d, want %d: %s", a.Status, want, a.Text)
	}
	return a
}

func (d desk) is(a cozycases.Answer, path string, want any) {
	d.t.Helper()
	if got := a.At(path); got != want {
		d.t.Errorf("%s is %v, want %v: %s", path, got, want, a.Text)
	}
}
