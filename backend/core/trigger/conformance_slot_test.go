package trigger

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// propertyCase is a case about what the slots of all ids have in common. Both sides are in words; what a case asks for is
// read out of it where it has figures.
type propertyCase struct {
	Input    struct{ Spec string }
	Expected map[string]any
}

// manyIDs are those of triggers that were created together.
var manyIDs = func() (ids []string) {
	for i := range 2000 {
		ids = append(ids, fmt.Sprintf("%032x", i))
	}
	return ids
}()

// expression is the one of a trigger with an id.
func (c propertyCase) expression(t *testing.T, id string) string {
	t.Helper()
	kind, arguments, _ := strings.Cut(c.Input.Spec, " ")
	p, err := ParsePeriodic(Kind(kind), arguments)
	if err != nil {
		t.Fatal(err)
	}
	return p.Expression(id)
}

// slots are the next ones of a trigger with an id.
func (c propertyCase) slots(t *testing.T, id string, n int) []time.Time {
	t.Helper()
	kind, arguments, _ := strings.Cut(c.Input.Spec, " ")
	slots, err := Preview(Kind(kind), arguments, "", id, anInstant, anInstant, n)
	if err != nil || len(slots) != n {
		t.Fatalf("%d slots, %v", len(slots), err)
	}
	return slots
}

// fields holds the fields of every id's expression against the bounds that a case has for them.
func (c propertyCase) fields(t *testing.T) {
	t.Helper()
	values := map[string]map[string]bool{}
	for _, id := range manyIDs {
		fields := strings.Fields(c.expression(t, id))
		if n, ok := c.Expected["crontab fields"].(float64); ok && len(fields) != int(n) {
			t.Fatalf("%v has not %v fields", fields, n)
		}
		for i, name := range []string{"second", "minute", "hour", "dom", "month", "dow"} {
			if values[name] == nil {
				values[name] = map[string]bool{}
			}
			values[name][fields[i]] = true
		}
	}
	for name, seen := range values {
		want, ok := c.Expected[name].(string)
		if !ok {
			continue
		}
		all := map[string]bool{"*": want == "*"}
		if low, high, ok := strings.Cut(want, ".."); ok {
			delete(all, "*")
			first, _ := strconv.Atoi(low)
			last, _ := strconv.Atoi(high)
			for n := first; n <= last; n++ {
				all[strconv.Itoa(n)] = true
			}
		}
		if !maps.Equal(seen, all) {
			t.Errorf("%s: the ids have %v, want all of %s", name, slices.Sorted(maps.Keys(seen)), want)
		}
	}
}

// properties run the cases by their ids.
var properties = map[string]func(t *testing.T, c propertyCase){
	"cz-086": func(t *testing.T, c propertyCase) { c.fields(t) },
	"cz-088": func(t *testing.T, c propertyCase) {
		c.fields(t)
		for _, id := range manyIDs[:200] {
			slots := c.slots(t, id, 10)
			for i := 1; i < len(slots); i++ {
				if gap := slots[i].Sub(slots[i-1]) - 24*time.Hour; gap.Abs() > 3*time.Minute {
					t.Errorf("%s: %v follows on %v", id, slots[i], slots[i-1])
				}
			}
		}
	},
	"cz-090": func(t *testing.T, c propertyCase) {
		for _, c.Input.Spec = range []string{"@hourly", "@daily after 4pm", "@weekly on weekday", "@monthly on the 3-7"} {
			kind, arguments, _ := strings.Cut(c.Input.Spec, " ")
			for _, id := range manyIDs[:200] {
				one, err := Timetable(Kind(kind), arguments, "", id, anInstant)
				again, err2 := Timetable(Kind(kind), arguments, "", id, anInstant.Add(1000*time.Hour))
				if err != nil || err2 != nil || one == "" || one != again {
					t.Errorf("%s of %s: %q, then %q; %v, %v", c.Input.Spec, id, one, again, err, err2)
				}
			}
		}
	},
	"cz-091": func(t *testing.T, c propertyCase) { // the id alone decides: it is another one whatever the message is
		same := map[string]int{}
		for _, id := range manyIDs {
			same[c.expression(t, id)]++
		}
		if len(same) < len(manyIDs)*9/10 {
			t.Errorf("%d triggers share %d slots", len(manyIDs), len(same))
		}
	},
	"cz-094": func(t *testing.T, c propertyCase) {
		for _, id := range manyIDs[:20] {
			months := map[time.Month]bool{}
			for _, slot := range c.slots(t, id, 7) {
				if slot.Day() != 31 {
					t.Errorf("%s: %v", id, slot)
				}
				months[slot.Month()] = true
			}
			if len(months) != 7 { // as many have a day 31, and a year has each once
				t.Errorf("%s: months %v", id, months)
			}
		}
	},
}

func TestConformanceOfPeriodicProperties(t *testing.T) {
	found := cases[propertyCase](t, "next-run/periodic-property")
	if len(found) != len(properties) {
		t.Errorf("got %d cases, want %d", len(found), len(properties))
	}
	for id, c := range found {
		t.Run(id, func(t *testing.T) {
			run := properties[id]
			if run == nil {
				t.Fatal("nobody runs it")
			}
			run(t, c)
		})
	}
}
