package trigger

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/schedule"
)

// slotOf returns second, minute, hour, day and weekday of the slot; -1 stands for *.
func slotOf(t *testing.T, p Periodic, id string) (fields [5]int) {
	t.Helper()
	words := strings.Split(p.Expression(id), " ")
	if len(words) != 6 || words[4] != "*" {
		t.Fatalf("%+v: %q has not six fields, the month any", p, words)
	}
	for i, word := range []string{words[0], words[1], words[2], words[3], words[5]} {
		n, err := strconv.Atoi(word)
		if word == "*" {
			n, err = -1, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		fields[i] = n
	}
	return fields
}

func periodic(t *testing.T, kind Kind, arguments string) Periodic {
	t.Helper()
	p, err := ParsePeriodic(kind, arguments)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Each field of the slot takes each allowed value, and no other, about as often as any.
func TestSlotsAreSpreadEvenly(t *testing.T) {
	numbers := func(from, to int) (list []int) {
		for n := from; n <= to; n++ {
			list = append(list, n)
		}
		return list
	}
	for _, c := range []struct {
		kind       Kind
		arguments  string
		hours      []int
		days, week []int
	}{
		{Hourly, "", nil, nil, nil},
		{Daily, "", numbers(0, 23), nil, nil},
		{Daily, "after 4pm", numbers(16, 23), nil, nil},
		{Daily, "between 8am and 9am", []int{8}, nil, nil},
		{Weekly, "", numbers(0, 23), nil, numbers(0, 6)},
		{Weekly, "on fri-mon before 5am", numbers(0, 4), nil, []int{0, 1, 5, 6}},
		{Monthly, "", numbers(0, 23), numbers(1, 28), nil},
		{Monthly, "on the 3-7 between 8am and 4pm", numbers(8, 15), numbers(3, 7), nil},
		{Monthly, "on the 31", numbers(0, 23), []int{31}, nil},
	} {
		t.Run(string(c.kind)+" "+c.arguments, func(t *testing.T) {
			const ids = 20_000
			p := periodic(t, c.kind, c.arguments)
			var counts [5]map[int]int
			for i := range counts {
				counts[i] = map[int]int{}
			}
			for n := range ids {
				for i, value := range slotOf(t, p, fmt.Sprintf("trigger-%d", n)) {
					counts[i][value]++
				}
			}
			for i, allowed := range [][]int{numbers(0, 59), numbers(0, 59), c.hours, c.days, c.week} {
				if allowed == nil {
					allowed = []int{-1}
				}
				if len(counts[i]) != len(allowed) {
					t.Errorf("field %d takes %d values, want %v", i, len(counts[i]), allowed)
				}
				want := float64(ids) / float64(len(allowed))
				for value, n := range counts[i] {
					if !slices.Contains(allowed, value) || math.Abs(float64(n)-want) > 5*math.Sqrt(want) {
						t.Errorf("field %d is %d %d times, want about %.0f", i, value, n, want)
					}
				}
			}
		})
	}
}

// A herd: triggers that differ in the end of their ids alone, created in one go.
func TestHerdsDoNotShareASecond(t *testing.T) {
	const herd = 5000
	for _, id := range []string{"%d", "01890a5d-ac96-774b-bcce-%012x", "konnector-%04d", "t%s"} {
		for _, c := range []struct {
			kind Kind
			most int // of 5,000 in one second of 3,600, or of 86,400
		}{{Hourly, 10}, {Daily, 4}} {
			seconds := map[[3]int]int{}
			p := periodic(t, c.kind, "")
			for n := range herd {
				text := fmt.Sprintf(id, n)
				if id == "t%s" {
					text = fmt.Sprintf(id, strconv.FormatInt(int64(n), 36))
				}
				f := slotOf(t, p, text)
				seconds[[3]int(f[:3])]++
			}
			for slot, n := range seconds {
				if n > c.most {
					t.Errorf("%s, ids %s: %d of %d share the slot %v", c.kind, id, n, herd, slot)
				}
			}
		}
	}
}

// The slots of a deployed version are in its rows, and those of texts made anew must be the same: these are fixed.
func TestSlotsStayWhereTheyAre(t *testing.T) {
	for _, c := range []struct {
		kind                Kind
		arguments, id, want string
	}{
		{Hourly, "", "01890a5d-ac96-774b-bcce-b302099a8057", "@cron 34 2 * * * *"},
		{Daily, "after 4pm", "01890a5d-ac96-774b-bcce-b302099a8057", "@cron 34 2 23 * * *"},
		{Weekly, "on mon,wed,fri", "01890a5d-ac96-774b-bcce-b302099a8057", "@cron 34 2 23 * * 1"},
		{Monthly, "on the 3-7 between 8am and 4pm", "01890a5d-ac96-774b-bcce-b302099a8057", "@cron 34 2 15 4 * *"},
	} {
		for _, created := range []time.Time{anInstant, anInstant.AddDate(1, 2, 3)} {
			text, err := Timetable(c.kind, c.arguments, "Europe/Paris", c.id, created)
			if err != nil || text != c.want {
				t.Errorf("%s %q: %q %v, want %q", c.kind, c.arguments, text, err, c.want)
			}
		}
	}
	one, _ := Timetable(Daily, "", "", "a", anInstant)
	other, _ := Timetable(Daily, "", "", "b", anInstant)
	if one == other {
		t.Errorf("two triggers share %q", one)
	}
}

func TestPeriodicSlotsComeOncePerPeriod(t *testing.T) {
	for kind, gaps := range map[Kind][2]time.Duration{
		Hourly: {time.Hour, time.Hour}, Daily: {24 * time.Hour, 24 * time.Hour}, Weekly: {168 * time.Hour, 168 * time.Hour},
		Monthly: {28 * 24 * time.Hour, 31 * 24 * time.Hour},
	} {
		for n := range 50 {
			slots, err := Preview(kind, "", "", fmt.Sprint(n), anInstant, anInstant, 40)
			if err != nil || len(slots) != 40 {
				t.Fatalf("%s: %v %v", kind, slots, err)
			}
			for i := 1; i < len(slots); i++ {
				if gap := slots[i].Sub(slots[i-1]); gap < gaps[0] || gap > gaps[1] {
					t.Fatalf("%s: %v after %v", kind, slots[i], slots[i-1])
				}
			}
		}
	}
	slots, err := Preview(Monthly, "on the 31", "", "x", anInstant, anInstant, 7)
	if err != nil {
		t.Fatal(err)
	}
	for _, slot := range slots {
		if slot.Day() != 31 {
			t.Errorf("on the 31: %v", slot)
		}
	}
	paris, err := schedule.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	slots, err = Preview(Weekly, "on sat between 9am and 10am", "Europe/Paris", "x", anInstant, anInstant, 60)
	if err != nil {
		t.Fatal(err)
	}
	for _, slot := range slots { // a year, and both changes of the clock
		if local := slot.In(paris); local.Weekday() != time.Saturday || local.Hour() != 9 {
			t.Errorf("not in the window of Paris: %v", local)
		}
	}
}
