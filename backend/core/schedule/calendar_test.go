package schedule

import (
	"testing"
	"time"
)

func TestCivilAgreesWithPackageTimeOnEveryDay(t *testing.T) {
	for day := int64(0); day <= maxDay; day++ {
		year, month, dom := civil(day)
		want := time.Unix(day*daySeconds, 0).UTC()
		y, m, d := want.Date()
		if year != y || month != int(m) || dom != d || weekday(day) != int(want.Weekday()) {
			t.Fatalf("day %d: got %d-%d-%d weekday %d, want %s", day, year, month, dom, weekday(day), want.Format("2006-01-02 Mon"))
		}
		if dom == 1 && month == 1 && yearStart(year) != day {
			t.Fatalf("yearStart(%d) = %d, want %d", year, yearStart(year), day)
		}
	}
	if last := time.Unix(maxDay*daySeconds, 0).UTC().Format(time.DateOnly); last != "3000-12-31" {
		t.Fatalf("maxDay is %s", last)
	}
}
