package schedule_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"carillon/backend/core/schedule"
)

func Example() {
	paris, err := schedule.LoadLocation("Europe/Paris")
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := schedule.Parse("30 2 * * 6,7", schedule.Verb, paris)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Describe())
	t := time.Date(2026, 3, 27, 0, 0, 0, 0, time.UTC)
	for range 3 { // on the 29th the clocks go from 2 to 3
		t, _ = s.Next(t)
		fmt.Println(t.Format(time.RFC3339), "=", t.In(paris).Format("Mon 15:04"))
	}
	// Output:
	// at 02:30 on Saturday and Sunday, Europe/Paris time
	// 2026-03-28T01:30:00Z = Sat 02:30
	// 2026-03-29T01:00:00Z = Sun 03:00
	// 2026-04-04T00:30:00Z = Sat 02:30
}

func ExampleParseAt() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err := schedule.ParseAt("0 0 30 2 *", schedule.Verb, nil, now)
	fmt.Println(err, errors.Is(err, schedule.ErrNeverFires))
	// Output:
	// could not find next time for pattern "0 0 30 2 *" true
}

func ExampleError() {
	_, err := schedule.Parse("0 9 * * MON-FRI", schedule.Verb, nil)
	var e *schedule.Error
	if errors.As(err, &e) {
		fmt.Println(e.Expr)
		fmt.Println(strings.Repeat(" ", e.Offset) + strings.Repeat("^", max(e.Length, 1)) + " " + e.Cause + ": " + e.Hint)
	}
	// Output:
	// 0 9 * * MON-FRI
	//         ^^^ unexpected "MON" in day of week: use 0-6
}

func ExampleSchedule_Count() {
	s, _ := schedule.Parse("*/5 * * * *", schedule.Verb, nil)
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fmt.Println(s.Count(first, first.Add(time.Hour), 100))
	fmt.Println(s.Count(first, first.AddDate(1, 0, 0), 100))
	// Output:
	// 13 false
	// 100 true
}

func ExampleSchedule_PrevOrAt() {
	s, _ := schedule.Parse("0 9-17 * * MON-FRI", schedule.Cozy, nil)
	last, _ := s.PrevOrAt(time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC)) // a Sunday
	fmt.Println(s, last.Format(time.RFC3339))
	// Output:
	// 0 9-17 * * 1-5 2026-03-06T17:00:00Z
}

func ExampleParseText() {
	created := time.Date(2024, 2, 28, 23, 59, 58, 500_000_000, time.UTC)
	s, _ := schedule.ParseText("@every 30m10s from "+created.Format(time.RFC3339Nano), nil)
	next, _ := s.Next(created)
	fmt.Println(s.Describe())
	fmt.Println(s.Text(), "=>", next.Format(time.RFC3339))
	// Output:
	// every 30 minutes and 10 seconds, counted from 2024-02-28 23:59:58 UTC
	// @every 30m10s from 2024-02-28T23:59:58Z => 2024-02-29T00:30:08Z
}
