package trigger

import (
	"slices"
	"strings"
	"testing"
)

func TestClausesOfPeriodicKinds(t *testing.T) {
	month28 := make([]int, 28)
	for i := range month28 {
		month28[i] = i + 1
	}
	week := []int{0, 1, 2, 3, 4, 5, 6}
	for _, c := range []struct {
		kind          Kind
		arguments     string
		days          []int
		after, before int
	}{
		{Hourly, "", nil, 0, 24},
		{Hourly, " \t ", nil, 0, 24},
		{Daily, "", nil, 0, 24},
		{Daily, "before 12pm", nil, 0, 12},
		{Daily, "before 12am", nil, 0, 24},
		{Daily, "after 12am", nil, 0, 24},
		{Daily, "after 12pm", nil, 12, 24},
		{Daily, "between 12am and 12am", nil, 0, 24},
		{Daily, "between 12pm and 12am", nil, 12, 24},
		{Daily, "between 11pm and 12am", nil, 23, 24},
		{Daily, "between 8am and 6pm", nil, 8, 18},
		{Daily, "after 8am before 6pm", nil, 8, 18},
		{Daily, "before 6pm after 8am", nil, 8, 18},
		{Daily, "before\t5am", nil, 0, 5},
		{Weekly, "", week, 0, 24},
		{Weekly, "after 10pm", week, 22, 24},
		{Weekly, "on weekend", []int{0, 6}, 0, 24},
		{Weekly, "on weekday", []int{1, 2, 3, 4, 5}, 0, 24},
		{Weekly, "on weekday,weekend", week, 0, 24},
		{Weekly, "on fri-mon", []int{0, 1, 5, 6}, 0, 24},
		{Weekly, "on friday-mon", []int{0, 1, 5, 6}, 0, 24},
		{Weekly, "on sun-sat", week, 0, 24},
		{Weekly, "on mon-sun", week, 0, 24},
		{Weekly, "on sat-sun", []int{0, 6}, 0, 24},
		{Weekly, "on fri,mon,mon", []int{1, 5}, 0, 24},
		{Weekly, "on tuesday,thursday,wed", []int{2, 3, 4}, 0, 24},
		{Weekly, "between 8am and 6pm on monday", []int{1}, 8, 18},
		{Weekly, "after 8am on sat before 9am", []int{6}, 8, 9},
		{Monthly, "", month28, 0, 24},
		{Monthly, "on the 31", []int{31}, 0, 24},
		{Monthly, "on the 29-31", []int{29, 30, 31}, 0, 24},
		{Monthly, "on the 16,1", []int{1, 16}, 0, 24},
		{Monthly, "on the 3,1-4", []int{1, 2, 3, 4}, 0, 24},
		{Monthly, "before 9am on the 1", []int{1}, 0, 9},
		{Monthly, "on the 3-7 between 8am and 4pm", []int{3, 4, 5, 6, 7}, 8, 16},
	} {
		p, err := ParsePeriodic(c.kind, c.arguments)
		if err != nil {
			t.Errorf("%s %q: %v", c.kind, c.arguments, err)
			continue
		}
		days := append(slices.Clone(p.DaysOfWeek), p.DaysOfMonth...)
		if !slices.Equal(days, c.days) || p.AfterHour != c.after || p.BeforeHour != c.before {
			t.Errorf("%s %q: got %+v", c.kind, c.arguments, p)
		}
	}
}

func TestBadClausesAreRefused(t *testing.T) {
	for kind, list := range map[Kind][]string{
		Hourly: {"before 5am", "after 5am", "between 8am and 6pm", "on mon", "on the 1", "x"},
		Daily: {
			"before", "after", "between", "and", "and 6pm", "between 8am", "between 8am and", "between 8am 6pm", "between and 6pm",
			"between 8am or 6pm", "before 5", "before 5 am", "before 17:00", "before 5AM", "before 5Am", "before 0am", "before 00am", "before 13am",
			"before 13pm", "before am", "before pm", "before -5am", "before +5am", "before 5.5am", "before 005am", "before 5am,",
			"before 5am before 5am", "before 5am before 6am", "after 5am after 5am", "before 9am between 5am and 6am",
			"between 5am and 6am between 5am and 6am", "between 5am and 6am after 5am", "between 6am and 6am", "after 10am before 9am",
			"between 12am and 1pm and 2pm", "After 5am", "on mon", "on the 1", "the 1", "before\n5am", "5am", "before 5am x",
			"after 11pm before 11pm", "between 12pm and 12pm", "before\u00a05am",
		},
		Weekly: {
			"on", "on ", "on the mon", "on the 1", "on 1", "on Monday", "on MON", "on weds", "on tues", "on mo", "on mondays", "on mon,", "on ,mon",
			"on mon,,tue", "on mon, tue", "on mon -tue", "on mon-", "on -mon", "on -", "on mon-mon", "on monday-mon", "on mon-tue-wed",
			"on weekend-mon", "on mon-weekend", "on weekday-sat", "on mon-weekday", "on weekdays", "mon", "on mon on mon", "on mon on tue",
			"on mon and tue", "on mon before 9am before 9am", "on before 9am",
		},
		Monthly: {
			"on", "on the", "on 1", "on mon", "on the mon", "on the 0", "on the 32", "on the 1-32", "on the 0-5", "on the 5-5", "on the 5-1",
			"on the 1-", "on the -1", "on the 1,", "on the ,1", "on the 1,,2", "on the 1, 2", "on the 1-2-3", "on the +1", "on the 1.5", "on the 1st",
			"on the 1 on the 2", "the 1", "on the 001", "on the 99999999999999999999",
		},
		Cron: {"", "0 0 * * *"}, At: {""}, Event: {""}, "@yearly": {""},
	} {
		for _, arguments := range list {
			if p, err := ParsePeriodic(kind, arguments); err == nil {
				t.Errorf("%s %q: got %+v", kind, arguments, p)
			}
		}
	}
}

// FuzzPeriodic: what is accepted means the same when its words are joined by single blanks, is a window within the day
// and days of the kind, and has a slot for any id.
func FuzzPeriodic(f *testing.F) {
	for _, arguments := range []string{
		"", "on fri-mon before 9am", "on the 1-3,5-7 between 8am and 4pm", "before 12am after 12pm", "on weekday,sat", "on the 31",
	} {
		for kind := range uint8(4) {
			f.Add(kind, arguments, "id")
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, arguments, id string) {
		kind := []Kind{Hourly, Daily, Weekly, Monthly}[n%4]
		p, err := ParsePeriodic(kind, arguments)
		if _, again := Timetable(kind, arguments, "", id, anInstant); (again == nil) != (err == nil) {
			t.Fatalf("%s %q: %v, but %v", kind, arguments, err, again)
		}
		if err != nil {
			return
		}
		q, err := ParsePeriodic(kind, strings.Join(strings.Fields(arguments), " "))
		if err != nil || !slices.Equal(p.DaysOfWeek, q.DaysOfWeek) || !slices.Equal(p.DaysOfMonth, q.DaysOfMonth) {
			t.Fatalf("%s %q: %+v, then %+v %v", kind, arguments, p, q, err)
		}
		if p.AfterHour < 0 || p.AfterHour >= p.BeforeHour || p.BeforeHour > 24 ||
			(len(p.DaysOfWeek) > 0) != (kind == Weekly) || (len(p.DaysOfMonth) > 0) != (kind == Monthly) ||
			!slices.IsSorted(p.DaysOfWeek) || !slices.IsSorted(p.DaysOfMonth) {
			t.Fatalf("%s %q: %+v", kind, arguments, p)
		}
	})
}
