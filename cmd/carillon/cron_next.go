package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"carillon/backend/core/schedule"
)

// maxSlots bounds what `cron next` prints.
const maxSlots = 100_000

// expression is the argument of the commands about a schedule, and how to read it. Words that were not quoted are joined.
type expression struct {
	Expr    []string `arg:"" name:"expr" help:"The schedule, in quotes: five fields, six with seconds first, seven with the year last."`
	Dialect string   `enum:"verb,cozy" default:"verb" placeholder:"verb|cozy" help:"verb: as in //carillon:cron. cozy: as in @cron triggers (names, ?)."`
	TZ      string   `name:"tz" placeholder:"ZONE" help:"Zone of the schedule's times, e.g. Europe/Paris (default UTC)."`
}

// parse reads the expression as a declaration at that instant would be read. A bad one is shown on stderr.
func (e expression) parse(stderr io.Writer, now time.Time) (schedule.Schedule, error) {
	dialect, err := schedule.ParseDialect(e.Dialect)
	if err != nil {
		return schedule.Schedule{}, err
	}
	loc, err := schedule.LoadLocation(e.TZ)
	if err != nil {
		return schedule.Schedule{}, mend(err, "use a name such as Europe/Paris or UTC")
	}
	s, err := schedule.ParseAt(strings.Join(e.Expr, " "), dialect, loc, now)
	if bad := (*schedule.Error)(nil); errors.As(err, &bad) {
		showBadSchedule(stderr, bad)
		return s, silent
	}
	return s, err
}

// showBadSchedule prints the reason, the expression with a caret line below its wrong piece, and the hint.
func showBadSchedule(w io.Writer, bad *schedule.Error) {
	fmt.Fprintf(w, "carillon: bad schedule: %s\n", clean(bad.Cause, 0))
	const longest = 400
	if expr := bad.Expr; expr != "" && len(expr) <= longest && bad.Offset >= 0 && bad.Offset+bad.Length <= len(expr) {
		// One blank for each character before the piece: clean may shorten nothing here, so the caret stands right.
		blank := func(r rune) rune { return ' ' }
		mark := func(r rune) rune { return '^' }
		shown := strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, expr)
		carets := strings.Map(mark, expr[bad.Offset:bad.Offset+bad.Length])
		fmt.Fprintf(w, "    %s\n    %s%s\n", shown, strings.Map(blank, expr[:bad.Offset]), max(carets, "^"))
	}
	if bad.Hint != "" {
		fmt.Fprintf(w, "hint: %s\n", clean(bad.Hint, 0))
	}
}

// cronNextCmd prints the next slots of a schedule.
type cronNextCmd struct {
	expression
	listing
	From time.Time `placeholder:"RFC3339" help:"The instant to count from, itself excluded (default: now)."`
	N    int       `short:"n" name:"count" default:"5" placeholder:"N" help:"How many slots (default ${default})."`
}

func (c *cronNextCmd) Help() string {
	return `Examples:

  carillon cron next "*/2 * * * * *"
  carillon cron next "30 4 * * 1-5" --tz Europe/Paris -n 10
  carillon cron next "0 0 9 ? * MON" --dialect cozy --from 2026-01-01T00:00:00Z -o json`
}

func (c *cronNextCmd) Run(a *app) error {
	if c.N < 1 || c.N > maxSlots {
		return usage{fmt.Errorf("-n %d: ask for 1 to %d slots", c.N, maxSlots)}
	}
	from := c.From
	if from.IsZero() {
		from = time.Now()
	}
	s, err := c.parse(a.stderr, from)
	if err != nil {
		return err
	}
	slots := []string{}
	for t := range slotsAfter(s, from) {
		if len(slots) == c.N {
			break
		}
		slots = append(slots, t.Format(layoutSeconds))
	}
	return c.print(a, slots, func() { c.table(a, s, from) })
}

func (c *cronNextCmd) table(a *app, s schedule.Schedule, from time.Time) {
	header := []string{"slot (UTC)", "in"}
	zoned := s.Location() != time.UTC
	if zoned {
		header = slices.Insert(header, 1, s.Location().String())
	}
	var rows [][]string
	for t := range slotsAfter(s, from) {
		if len(rows) == c.N {
			break
		}
		row := []string{t.Format(layoutSeconds), distance(t.Sub(from))}
		if zoned {
			row = slices.Insert(row, 1, t.In(s.Location()).Format("Mon 2006-01-02 15:04:05 MST"))
		}
		rows = append(rows, row)
	}
	a.table(header, rows)
	if len(rows) < c.N {
		fmt.Fprintln(a.stdout, "no more: the schedule ends here")
	}
}

// slotsAfter yields the slots after an instant until the schedule ends.
func slotsAfter(s schedule.Schedule, from time.Time) func(func(time.Time) bool) {
	return func(yield func(time.Time) bool) {
		for t, ok := s.Next(from); ok && yield(t); t, ok = s.Next(t) {
		}
	}
}

// cronExplainCmd says a schedule in words.
type cronExplainCmd struct {
	expression
	listing
}

func (c *cronExplainCmd) Help() string {
	return `Examples:

  carillon cron explain "0 0 * * *"
  carillon cron explain "30 4 1,15 * 5" --tz America/New_York`
}

func (c *cronExplainCmd) Run(a *app) error {
	s, err := c.parse(a.stderr, time.Now())
	if err != nil {
		return err
	}
	said := struct {
		Schedule    string `json:"schedule"`
		TimeZone    string `json:"time_zone"`
		Description string `json:"description"`
	}{s.String(), s.Location().String(), s.Describe()}
	return c.print(a, said, func() { fmt.Fprintln(a.stdout, said.Description) })
}

// guardExpressions keeps the parser from taking a schedule for a flag: of the arguments of `cron next` and `cron explain`,
// one that begins with a dash but holds blanks goes behind "--".
func guardExpressions(args []string) []string {
	at := slices.Index(args, "cron")
	if at < 0 || at+1 >= len(args) || args[at+1] != "next" && args[at+1] != "explain" || slices.Contains(args, "--") {
		return args
	}
	var kept, expressions []string
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") && strings.ContainsAny(arg, " \t") && !strings.Contains(arg, "=") {
			expressions = append(expressions, arg)
		} else {
			kept = append(kept, arg)
		}
	}
	if len(expressions) == 0 {
		return args
	}
	return append(append(kept, "--"), expressions...)
}
