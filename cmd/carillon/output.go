package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// listing is the choice of every command that lists something.
type listing struct {
	Output string `short:"o" enum:"table,json" default:"table" placeholder:"table|json" help:"Form of the output: table or json."`
}

// print writes the value as JSON, or calls the function that draws the table.
func (l listing) print(a *app, value any, draw func()) error {
	if l.Output == "json" {
		return a.json(value)
	}
	draw()
	return nil
}

// json prints a value for programs. Slices must not be nil, so that an empty list is [].
func (a *app) json(value any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return fmt.Errorf("print json: %w", err)
	}
	return nil
}

// list makes JSON rows of messages; never nil.
func list[M, R any](messages []M, row func(M) R) []R {
	rows := make([]R, len(messages))
	for i, m := range messages {
		rows[i] = row(m)
	}
	return rows
}

// table prints rows below a header. A cell is a single line; whoever fills it with a text from outside uses clean.
func (a *app) table(header []string, rows [][]string) {
	w := table.NewWriter()
	w.SetOutputMirror(a.stdout)
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	w.SetStyle(style)
	w.SuppressTrailingSpaces()
	w.AppendHeader(cells(header))
	for _, r := range rows {
		w.AppendRow(cells(r))
	}
	w.Render()
}

func cells(texts []string) table.Row {
	row := make(table.Row, len(texts))
	for i, t := range texts {
		row[i] = t
	}
	return row
}

// clean makes a text from outside fit for one cell or line of a terminal: no control characters, which could move its
// cursor or change its title, and at most that many characters (0 = any number).
func clean(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	s = strings.TrimSpace(s)
	if runes := []rune(s); most > 0 && len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return s
}

// Colours of a terminal.
const (
	plain  = ""
	faint  = "\x1b[2m"
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	blue   = "\x1b[36m"
)

// paint wraps a text in a colour where colours are wanted.
func (a *app) paint(colour, s string) string {
	if !a.colour || colour == plain || s == "" {
		return s
	}
	return colour + s + "\x1b[0m"
}

// wantsColour reports whether w is a terminal whose user did not decline colours (https://no-color.org).
func wantsColour(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}

// Layouts of times: JSON carries UTC, with microseconds where the database does; tables show UTC in a short form.
const (
	layoutMicros  = "2006-01-02T15:04:05.000000Z"
	layoutSeconds = "2006-01-02T15:04:05Z"
	layoutTable   = "2006-01-02 15:04:05"
)

// stamp is a time for JSON: null when it is not set.
func stamp(t *timestamppb.Timestamp) *string {
	if t == nil {
		return nil
	}
	s := t.AsTime().UTC().Format(layoutMicros)
	return &s
}

func stamps(ts []*timestamppb.Timestamp) []string {
	return list(ts, func(t *timestamppb.Timestamp) string { return t.AsTime().UTC().Format(layoutMicros) })
}

// when is a time for a table: "-" when it is not set.
func when(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().UTC().Format(layoutTable)
}

// spread joins the times of one cell.
func spread(ts []*timestamppb.Timestamp) string {
	if len(ts) == 0 {
		return "-"
	}
	return strings.Join(list(ts, when), ", ")
}

// took is a duration for a person: three digits are enough.
func took(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + took(-d)
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// plural writes a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
