package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var march2026 = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func TestErrorsNameThePieceAndTheCause(t *testing.T) {
	for _, c := range []struct {
		expr        string
		d           Dialect
		field       int
		piece       string // what Offset and Length mark
		cause, hint string
	}{
		{"", Verb, -1, "", "expected 5-7 components, got 0", `write five fields, e.g. "0 0 * * *" for every midnight`},
		{" \t ", Verb, -1, "", "expected 5-7 components, got 0", `write five fields, e.g. "0 0 * * *" for every midnight`},
		{" 0 0 * * ", Verb, -1, "0 0 * *", "expected 5-7 components, got 4", "the fields are: minute, hour, day of month, month, day of week"},
		{"* * * * * * *  * *", Verb, -1, "* *", "expected 5-7 components, got 9", "separate the values of one field by commas, without blanks"},
		{"0 0 0 * * * 2030", Cozy, -1, "2030", "expected 5-6 components, got 7", "years are not supported here, use 6 fields with the second first"},
		{"@hourly", Verb, -1, "@hourly", "expected 5-7 components, got 1", `use "0 * * * *"`},
		{"@Daily", Cozy, -1, "@Daily", "expected 5-6 components, got 1", `use "0 0 * * *"`},
		{"@every 5m", Verb, -1, "@every 5m", "expected 5-7 components, got 2", `words with @ are not supported, use fields, e.g. "*/5 * * * *" for every five minutes`},
		{"TZ=UTC 0 0 * * *", Verb, 0, "TZ=UTC", `unexpected "TZ=UTC" in second`, hintZone},
		{"CRON_TZ=UTC 0 0 * *", Cozy, 0, "CRON_TZ=UTC", `unexpected "CRON_TZ=UTC" in minute`, hintZone},
		{"60 * * * *", Verb, 0, "60", "value 60 out of allowed minute range of 0-59", ""},
		{"5,60 * * * *", Verb, 0, "60", "value 60 out of allowed minute range of 0-59", ""},
		{"60 0 0 * * *", Verb, 0, "60", "value 60 out of allowed second range of 0-59", ""},
		{"* 24 * * *", Verb, 1, "24", "value 24 out of allowed hour range of 0-23", "use 0 for midnight"},
		{"* * 0 * *", Verb, 2, "0", "value 0 out of allowed day of month range of 1-31", ""},
		{"* * * 1-13 *", Verb, 3, "13", "value 13 out of allowed month range of 1-12", ""},
		{"* * * * 8", Verb, 4, "8", "value 8 out of allowed day of week range of 0-6", ""},
		{"* * * * 0007/2", Verb, 4, "0007", "value 7 out of allowed day of week range of 0-6", ""},
		{"* * * * 7/2", Verb, 4, "7", "value 7 out of allowed day of week range of 0-6", "use 0 for Sunday: 7 may stand alone or end a range"},
		{"* * * * 7-7", Verb, 4, "7", "value 7 out of allowed day of week range of 0-6", "use 0 for Sunday: 7 may stand alone or end a range"},
		{"* * * * 7", Cozy, 4, "7", "value 7 out of allowed day of week range of 0-6", "use 0 for Sunday"},
		{"* * * * 5-7", Cozy, 4, "7", "value 7 out of allowed day of week range of 0-6", "use 0 for Sunday"},
		{"* * * * * * 1969", Verb, 6, "1969", "value 1969 out of allowed year range of 1970-3000", ""},
		{"99999999999999999999999 * * * *", Verb, 0, "99999999999999999999999", "value 99999999999999999999... out of allowed minute range of 0-59", ""},
		{"0 0 1 1 *  2030", Verb, 5, "2030", "value 2030 out of allowed day of week range of 0-6", `six fields begin with the second, use 7 fields to name a year: "0 0 0 1 1 * 2030"`},
		{"0 0 1 1 * 2030", Cozy, 5, "2030", "value 2030 out of allowed day of week range of 0-6", "six fields begin with the second, years are not supported here"},
		{"*/0 * * * *", Verb, 0, "0", "step must be positive", ""},
		{"*/60 * * * *", Verb, 0, "60", "step 60 is larger than allowed range of 0-59", ""},
		{"* * */31 * *", Verb, 2, "31", "step 31 is larger than allowed range of 1-31", ""},
		{"*/ * * * *", Verb, 0, "*/", "missing step in minute", ""},
		{"*/x * * * *", Verb, 0, "x", `unexpected "x" as step of minute`, "a step is a number"},
		{"*/5/2 * * * *", Verb, 0, "5/2", `unexpected "5/2" as step of minute`, "a step is a number"},
		{"5-1 * * * *", Verb, 0, "5-1", "range end 1 is less than start 5", "write it as two ranges: 5-59,0-1"},
		{"0 0 * * FRI-MON", Cozy, 4, "FRI-MON", "range end 1 is less than start 5", "write it as two ranges: 5-6,0-1"},
		{"* * * * * * */2", Verb, 6, "*/2", "asterix with a step value is not allowed for year component", ""},
		{"1,,2 * * * *", Verb, 0, ",,", "empty item in minute", ""},
		{",1 * * * *", Verb, 0, ",", "empty item in minute", ""},
		{"* 1, * * *", Verb, 1, ",", "empty item in hour", ""},
		{"5- * * * *", Verb, 0, "5-", "missing value in minute", ""},
		{"/5 * * * *", Verb, 0, "/5", "missing value in minute", ""},
		{"1-2-3 * * * *", Verb, 0, "2-3", `unexpected "2-3" in minute`, ""},
		{"-1 * * * *", Verb, 0, "-1", `unexpected "-1" in minute`, "signs are not supported"},
		{"1.5 * * * *", Verb, 0, "1.5", `unexpected "1.5" in minute`, "fractions are not supported"},
		{"** * * * *", Verb, 0, "**", `unexpected "**" in minute`, ""},
		{"0 0 * JAN *", Verb, 3, "JAN", `unexpected "JAN" in month`, "use 1-12"},
		{"0 0 * * mon-fri", Verb, 4, "mon", `unexpected "mon" in day of week`, "use 0-6"},
		{"0 0 * * Sunday", Cozy, 4, "Sunday", `unexpected "Sunday" in day of week`, "use a name of three letters or 0-6"},
		{"0 0 JAN * *", Cozy, 2, "JAN", `unexpected "JAN" in day of month`, "use 1-31"},
		{"0 0 * * ?", Verb, 4, "?", `unexpected "?" in day of week`, "use *"},
		{"0 ? * * *", Cozy, 1, "?", `unexpected "?" in hour`, "? may stand only in the two day fields, use *"},
		{"0 0 L * *", Verb, 2, "L", `unexpected "L" in day of month`, "L and W are not supported"},
		{"0 0 15W * *", Cozy, 2, "15W", `unexpected "15W" in day of month`, "L and W are not supported"},
		{"0 0 * * 5#3", Verb, 4, "5#3", `unexpected "5#3" in day of week`, "# is not supported"},
		{"0 0 * * *\n", Verb, 4, "*\n", `unexpected "*\n" in day of week`, ""},
		{"\x00\xff 0 * * *", Verb, 0, "\x00\xff", `unexpected "\x00\xff" in minute`, ""},
		{"٣ 0 * * *", Verb, 0, "٣", `unexpected "٣" in minute`, ""},
	} {
		_, err := Parse(c.expr, c.d, nil)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: got %v, want an *Error", c.expr, err)
			continue
		}
		if e.Error() != c.cause || e.Hint != c.hint {
			t.Errorf("%q: got %q with the hint %q\nwant %q with the hint %q", c.expr, e, e.Hint, c.cause, c.hint)
		}
		if piece := e.Expr[e.Offset : e.Offset+e.Length]; e.Field != c.field || piece != c.piece || e.Expr != c.expr {
			t.Errorf("%q: the error marks %q in field %d, want %q in field %d", c.expr, piece, e.Field, c.piece, c.field)
		}
		if errors.Is(err, ErrNeverFires) {
			t.Errorf("%q: a syntax error is ErrNeverFires", c.expr)
		}
	}
}

func TestTooLongExpressionsAreRefused(t *testing.T) {
	fits := "0" + strings.Repeat(",0", (MaxLength-9)/2) + " 0 * * *"
	if _, err := Parse(fits, Verb, nil); err != nil {
		t.Errorf("%d bytes: %v", len(fits), err)
	}
	_, err := Parse(strings.Repeat(" ", MaxLength)+"* * * * *", Verb, nil)
	if err == nil || err.Error() != "expression is longer than 4096 bytes" {
		t.Errorf("got %v", err)
	}
}

func TestUnknownDialectsAreRefused(t *testing.T) {
	if _, err := Parse("* * * * *", Dialect(7), nil); err == nil {
		t.Error("Dialect(7) was accepted")
	}
	if _, err := ParseDialect("quartz"); err == nil {
		t.Error("quartz was accepted")
	}
	for _, d := range []Dialect{Verb, Cozy} {
		if got, err := ParseDialect(d.String()); err != nil || got != d {
			t.Errorf("ParseDialect(%q) = %v, %v", d, got, err)
		}
	}
}

func TestSchedulesThatNeverFireAreRefusedAtDeclaration(t *testing.T) {
	for _, c := range []struct{ expr, hint string }{
		{"0 0 30 2 *", "no such date exists: check the days, the months and the year"},
		{"0 0 31 4 *", "no such date exists: check the days, the months and the year"},
		{"0 0 31 2,4,6,9,11 *", "no such date exists: check the days, the months and the year"},
		{"0 0 0 29 2 * 2100", "no such date exists: check the days, the months and the year"},
		{"0 0 0 30 2 * 1970-3000", "no such date exists: check the days, the months and the year"},
		{"* * * * * * 2025", "its last time was 2025-12-31T23:59:59Z"},
		{"0 0 12 4 3 * 2026", "its last time was 2026-03-04T12:00:00Z"},
	} {
		if _, err := Parse(c.expr, Verb, nil); err != nil {
			t.Errorf("%q is well written, but: %v", c.expr, err)
		}
		zone, best := location(t, "Etc/UTC"), time.Hour
		var err error
		for range 5 { // the best of five, for a busy machine
			began := time.Now()
			_, err = ParseAt(c.expr, Verb, zone, march2026)
			best = min(best, time.Since(began))
		}
		if best > 10*time.Millisecond {
			t.Errorf("%q took %v", c.expr, best)
		}
		var e *Error
		if !errors.Is(err, ErrNeverFires) || !errors.As(err, &e) {
			t.Errorf("%q: got %v, want ErrNeverFires", c.expr, err)
			continue
		}
		if want := `could not find next time for pattern "` + c.expr + `"`; err.Error() != want || e.Hint != c.hint {
			t.Errorf("%q: got %q with the hint %q, want %q with %q", c.expr, err, e.Hint, want, c.hint)
		}
	}
	// An OR with a weekday does fire, and so does a year that is still to come.
	for _, expr := range []string{"0 0 30 2 1", "0 0 0 29 2 * 2104", "1 0 12 4 3 * 2026"} {
		if _, err := ParseAt(expr, Verb, nil, march2026); err != nil {
			t.Errorf("%q: %v", expr, err)
		}
	}
}

func TestCanonicalText(t *testing.T) {
	for _, c := range []struct {
		expr string
		d    Dialect
		want string
	}{
		{"  00\t08  * * *  ", Verb, "0 8 * * *"},
		{"5,05,*/010 0-7 1-31/3 * 7,5-7,0", Verb, "5,5,*/10 0-7 1-31/3 * 0,5-7,0"},
		{"0 0 0 1/10 1 * 2030-2034/2,2040", Verb, "0 0 0 1/10 1 * 2030-2034/2,2040"},
		{"0 0 ? feb-Apr mon,FRI", Cozy, "0 0 * 2-4 1,5"},
		{"0 0 9 ?/2 DEC/1 SUN-TUE/2", Cozy, "0 0 9 */2 12/1 0-2/2"},
		{"0 0 9 * * ?", Cozy, "0 0 9 * * *"},
	} {
		s, err := Parse(c.expr, c.d, nil)
		if err != nil || s.String() != c.want {
			t.Errorf("%q: got %q, %v, want %q", c.expr, s, err, c.want)
			continue
		}
		if again, err := Parse(s.String(), c.d, nil); err != nil || again != s {
			t.Errorf("%q does not survive another reading: %v", s, err)
		}
	}
}

// TestRestrictedMeansWritten freezes the day rule: any text but a bare * (or ?) restricts its field.
func TestRestrictedMeansWritten(t *testing.T) {
	for _, c := range []struct {
		expr string
		d    Dialect
		want string // slots after noon of Wednesday 2026-03-04
	}{
		{"0 0 */2 * 1", Verb, "05 07 09 11 13"},
		{"0 0 */1 * 1", Verb, "05 06 07 08 09"},
		{"0 0 1-31 * 1", Verb, "05 06 07 08 09"},
		{"0 0 * * 1", Verb, "09 16 23 30 06"},
		{"0 0 10 * */1", Verb, "05 06 07 08 09"},
		{"0 0 10 * *", Verb, "10 10 10 10 10"},
		{"0 0 ? * MON", Cozy, "09 16 23 30 06"},
		{"0 0 10 * ?", Cozy, "10 10 10 10 10"},
		{"0 0 * 2 1", Verb, "01 08 15 22 07"},
		{"0 0 * * 5-7", Verb, "06 07 08 13 14"},
		{"0 0 * * 1-7/3", Verb, "05 08 09 12 15"},
	} {
		s, err := Parse(c.expr, c.d, nil)
		if err != nil {
			t.Fatal(err)
		}
		var days []string
		for at := range s.Between(march2026, march2026.AddDate(30, 0, 0)) {
			if days = append(days, at.Format("02")); len(days) == 5 {
				break
			}
		}
		if got := strings.Join(days, " "); got != c.want {
			t.Errorf("%q: got days %s, want %s", c.expr, got, c.want)
		}
	}
}
