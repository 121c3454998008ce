package trigger_test

import (
	"fmt"
	"time"

	"carillon/backend/core/trigger"
)

func ExampleTimetable() {
	created := time.Date(2026, 3, 1, 8, 30, 0, 0, time.UTC)
	for _, t := range []struct {
		kind      trigger.Kind
		arguments string
	}{
		{trigger.At, "2026-12-12T15:36:25.507+01:00"},
		{trigger.In, "1h30m"},
		{trigger.Every, "30m10s"},
		{trigger.Cron, "0 0 9 ? * MON-FRI"},
		{trigger.Hourly, ""},
		{trigger.Daily, "between 8am and 6pm"},
		{trigger.Weekly, "on fri-mon before 9am"},
		{trigger.Monthly, "on the 1-5"},
	} {
		text, err := trigger.Timetable(t.kind, t.arguments, "", "an id", created)
		fmt.Println(t.kind, "=>", text, err)
	}
	// Output:
	// @at => @at 2026-12-12T14:36:25.507Z <nil>
	// @in => @at 2026-03-01T10:00:00Z <nil>
	// @every => @every 30m10s from 2026-03-01T08:30:00Z <nil>
	// @cron => @cron 0 0 9 * * 1-5 <nil>
	// @hourly => @cron 33 5 * * * * <nil>
	// @daily => @cron 33 5 11 * * * <nil>
	// @weekly => @cron 33 5 7 * * 0 <nil>
	// @monthly => @cron 33 5 7 5 * * <nil>
}

func ExamplePreview() {
	created := time.Date(2026, 3, 1, 8, 30, 0, 0, time.UTC)
	slots, err := trigger.Preview(trigger.Every, "36h", "", "an id", created, created, 3)
	for _, slot := range slots {
		fmt.Println(slot.Format(time.RFC3339))
	}
	fmt.Println(err)
	// Output:
	// 2026-03-02T20:30:00Z
	// 2026-03-04T08:30:00Z
	// 2026-03-05T20:30:00Z
	// <nil>
}

func ExampleCheck() {
	now := time.Date(2026, 3, 1, 8, 30, 0, 0, time.UTC)
	fmt.Println(trigger.Check(trigger.Cron, "0 0 30 2 *", "", now))
	fmt.Println(trigger.Check(trigger.Daily, "between 9pm and 3am", "", now))
	fmt.Println(trigger.Check(trigger.Every, "1.5s", "", now))
	// Output:
	// could not find next time for pattern "0 0 30 2 *" (no such date exists: check the days, the months and the year)
	// @daily: a window from hour 21 to 3 has no hours
	// @every: the duration "1.5s" is no whole number of seconds above zero
}
