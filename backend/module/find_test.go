package module

import (
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/tools/txtar"
)

// A tree with two Go modules, one inside the other, and two Kotlin projects.
const forest = `
-- main.go --
package main
-- go.mod --
module example.com/forest
-- billing/billing.go --
package billing

//carillon:cron 0 6 * * *
func Send(ctx context.Context) error { return nil }
-- billing/internal/mail/mail.go --
package mail

//carillon:verb
func Mail(ctx context.Context) error { return nil }
-- plain/plain.go --
package plain

// It says "//carillon:cron" in the middle of a line.
-- tested/tested.go --
package tested
-- tested/tested_test.go --
package tested

//carillon:cron 0 6 * * *
-- other/go.mod --
module example.com/other
-- other/old/old.go --
package old

//ftl:cron 0 6 * * *
func Old(ctx context.Context) error { return nil }
-- other/testdata/x/x.go --
package x

//carillon:verb
-- other/vendor/v/v.go --
package v

//carillon:verb
-- .hidden/h.go --
package h

//carillon:verb
-- kotlin/a/build.gradle.kts --
-- kotlin/a/src/main/kotlin/com/a/A.kt --
package com.a
@Cron("0 6 * * *")
fun a() {}
-- kotlin/b/src/main/kotlin/com/b/B.kt --
package com.b
@Cron("0 6 * * *")
fun b() {}
-- kotlin/b/src/main/kotlin/com/b/C.kt --
package com.b
-- kotlin/c/C.kt --
package com.c
`

func TestFindSeesEveryModuleBelow(t *testing.T) {
	dir := extract(t, txtar.Parse([]byte(forest)))
	t.Chdir(dir)
	for from, want := range map[string][]string{
		".":                         {"billing", "billing/internal/mail", "kotlin/a", "kotlin/b", "other/old"},
		"./billing":                 {"./billing", "billing/internal/mail"},
		"other":                     {"other/old"},
		"plain":                     {"plain"},
		"tested":                    {"tested"},
		"kotlin":                    {"kotlin"}, // no Go: one module, as ever
		"kotlin/a":                  {"kotlin/a"},
		"gone":                      {"gone"},
		"other/testdata":            {"other/testdata/x"}, // named, not passed by
		filepath.Join(dir, "other"): {filepath.Join(dir, "other", "old")},
	} {
		if got := Find(from); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", from, got, want)
		}
	}
}
