package cron

import (
	"strings"
	"testing"
)

func TestARefIsTwoNames(t *testing.T) {
	long := strings.Repeat("m", MaxNameBytes)
	for ref, want := range map[string]bool{
		"heartbeat.beat": true, "m.v": true, "m2.sendMail": true, long + "." + long: true,
		"": false, ".": false, "m": false, "m.": false, ".v": false, "m.v.w": false, "M.v": false, "m.V": false, "2m.v": false, "my_module.v": false,
		"m.send_mail": false, "m.send-mail": false, "m .v": false, "m.v\n": false, "m.é": false, "m" + long + ".v": false, "m.v" + long: false,
	} {
		module, verb, ok := ParseRef(ref)
		if ok != want || ok && module+"."+verb != ref {
			t.Errorf("%.40q: %q and %q, %t; want %t", ref, module, verb, ok, want)
		}
		if len(ref) > MaxRefBytes && ok {
			t.Errorf("%.40q: longer than MaxRefBytes", ref)
		}
	}
}
