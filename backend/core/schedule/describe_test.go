package schedule

import "testing"

func TestDescribe(t *testing.T) {
	for expr, want := range map[string]string{
		"* * * * * *":                "every second",
		"*/2 * * * * *":              "every 2 seconds",
		"0,30 * * * * *":             "every 30 seconds",
		"* * * * *":                  "every minute",
		"*/5 * * * *":                "every 5 minutes",
		"*/7 * * * *":                "at minutes 0 to 56 in steps of 7 of every hour",
		"15 * * * *":                 "at minute 15 of every hour",
		"10,20,21,22 * * * *":        "at minutes 10 and 20 to 22 of every hour",
		"30 * * * * *":               "at second 30 of every minute",
		"0 * * * *":                  "every hour",
		"0 */6 * * *":                "every 6 hours",
		"0 0-18/6 * * *":             "at 00:00, 06:00, 12:00 and 18:00 every day",
		"0 */5 * * *":                "at 00:00, 05:00, 10:00, 15:00 and 20:00 every day",
		"0 0 * * *":                  "at 00:00 every day",
		"15 30 4 * * *":              "at 04:30:15 every day",
		"30 4 * * 1-5":               "at 04:30 on Monday to Friday",
		"5,35 9,17 * * *":            "at 09:05, 09:35, 17:05 and 17:35 every day",
		"0 9-17 * * 1-5":             "every hour from 09:00 to 17:00 on Monday to Friday",
		"*/15 9-17 * * *":            "every 15 minutes from 09:00 to 17:45 every day",
		"* 0-5 * * *":                "every minute from 00:00 to 05:59 every day",
		"* 9 * * *":                  "every minute from 09:00 to 09:59 every day",
		"*/10 2,14 * * *":            "at minutes 0 to 50 in steps of 10 of hours 2 and 14 every day",
		"* * 9-17 * * 0,6":           "every second of every minute of hours 9 to 17 on Saturday and Sunday",
		"0 22 * * 5-7":               "at 22:00 on Friday to Sunday",
		"0 0 1 * *":                  "at 00:00 on day 1 of the month",
		"0 0 1,15 * *":               "at 00:00 on days 1 and 15 of the month",
		"0 0 13 * 5":                 "at 00:00 on day 13 of the month or on Friday",
		"0 0 */1 * 5":                "at 00:00 every day",
		"0 0 13 * 0-6":               "at 00:00 every day",
		"0 0 25 12 *":                "at 00:00 on day 25 of December",
		"0 0 1 3,6,9,12 *":           "at 00:00 on day 1 of March, June, September and December",
		"0 12 * 2 1":                 "at 12:00 on Monday in February",
		"0 12 * 6-8 *":               "at 12:00 every day in June to August",
		"0 0 1 1 0":                  "at 00:00 on day 1 or on Sunday, both in January",
		"*/5 * * * 1":                "every 5 minutes on Monday",
		"0 0 0 1 1 * 2030":           "at 00:00 on day 1 of January in 2030",
		"0 0 0 * * * 2030-2034":      "at 00:00 every day in 2030 to 2034",
		"* * * * * * 2030,2032":      "every second in 2030 and 2032",
		"0 0 12 * * * 1970-3000/4":   "at 12:00 every day in 258 years from 1970 to 2998",
		"0 0 0 * * * 1970-3000":      "at 00:00 every day in 1970 to 3000",
		"0 1-23/2 * * *":             "at minute 0 of hours 1 to 23 in steps of 2 every day",
		"0 0 0-23 1 * * 2999-3000":   "every hour on day 1 of the month in 2999 and 3000",
		"1,2,4,8,16,32 0 0,12 * * *": "at seconds 1, 2, 4, 8, 16 and 32 of minute 0 of hours 0 and 12 every day",
	} {
		s := parse(t, expr, "")
		if got := s.Describe(); got != want {
			t.Errorf("%q:\n got %q\nwant %q", expr, got, want)
		}
	}
	if got, want := parse(t, "30 2 * * *", "America/New_York").Describe(), "at 02:30 every day, America/New_York time"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
