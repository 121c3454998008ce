package trigger

import (
	"errors"
	"strings"
	"testing"

	"carillon/backend/core/cron"
)

func TestKinds(t *testing.T) {
	for _, kind := range Kinds {
		if got, err := ParseKind(string(kind)); err != nil || got != kind {
			t.Errorf("%s: %v %v", kind, got, err)
		}
		if timed := kind != Event && kind != Webhook && kind != Client; kind.Timed() != timed {
			t.Errorf("%s is timed: %v", kind, !timed)
		}
		if once := kind == At || kind == In; kind.Once() != once {
			t.Errorf("%s fires once: %v", kind, !once)
		}
	}
	if len(Kinds) != 11 {
		t.Errorf("%d kinds", len(Kinds))
	}
	if got, err := ParseKind("@interval"); err != nil || got != Every {
		t.Errorf("@interval: %v %v", got, err)
	}
}

func TestUnknownKindsAreRefused(t *testing.T) {
	for _, text := range []string{"", "at", "@AT", "@At", " @at", "@at ", "@yearly", "@reboot", "@intervals"} {
		_, err := ParseKind(text)
		for _, err := range []error{err, Check(Kind(text), "10m", "", anInstant)} {
			var f *Fault
			if !errors.As(err, &f) || *f != (Fault{"/data/attributes/Type", "Invalid Attribute", "Unknown trigger type"}) {
				t.Errorf("%q: %#v", text, err)
			}
			if !errors.Is(err, cron.ErrInvalid) {
				t.Errorf("%q: %v is not invalid", text, err)
			}
		}
		if _, err := Timetable(Kind(text), "10m", "", "id", anInstant); err == nil {
			t.Errorf("%q has a timetable", text)
		}
		if _, err := Preview(Kind(text), "10m", "", "id", anInstant, anInstant, 1); err == nil {
			t.Errorf("%q has a preview", text)
		}
	}
}

func TestArgumentsOfWebhooksAndClientsAreKept(t *testing.T) {
	for _, kind := range []Kind{Webhook, Client} {
		for _, arguments := range []string{"", "ignored text", "\n\té"} {
			if err := Check(kind, arguments, "", anInstant); err != nil {
				t.Errorf("%s %q: %v", kind, arguments, err)
			}
		}
		if _, err := Timetable(kind, "", "", "id", anInstant); err == nil {
			t.Errorf("%s has a timetable", kind)
		}
		if slots, err := Preview(kind, "", "", "id", anInstant, anInstant, 5); err != nil || len(slots) > 0 {
			t.Errorf("%s: preview %v %v", kind, slots, err)
		}
	}
}

func TestWhatCannotBeStoredIsRefused(t *testing.T) {
	for _, kind := range Kinds {
		for name, arguments := range map[string]string{
			"long": strings.Repeat(" ", MaxArguments+1), "NUL": "1h\x00", "no UTF-8": "1h\xff",
		} {
			var f *Fault
			if err := Check(kind, arguments, "", anInstant); !errors.As(err, &f) || f.Pointer != PointerArguments {
				t.Errorf("%s, %s: %v", kind, name, err)
			}
		}
	}
}

func TestZonesAreNamesOfTheDatabase(t *testing.T) {
	arguments := map[Kind]string{At: "2030-01-01T00:00:00Z", In: "10m", Every: "10m", Cron: "0 0 * * *", Event: "io.cozy.files"}
	for _, kind := range Kinds {
		for zone, ok := range map[string]bool{"": true, "UTC": true, "Europe/Paris": true, "Mars/Base": false, "Local": false, "+02:00": false} {
			err := Check(kind, arguments[kind], zone, anInstant)
			var f *Fault
			if ok && err != nil || !ok && (!errors.As(err, &f) || f.Pointer != PointerZone) {
				t.Errorf("%s in %q: %v", kind, zone, err)
			}
		}
	}
}
