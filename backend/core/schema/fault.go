package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Position is a place in a file. Line and Column count from one, Column in bytes; zero is unknown.
type Position struct {
	File   string
	Line   int
	Column int
}

// String prints file:line:col, without the parts that are unknown.
func (p Position) String() string {
	s := p.File
	if p.Line > 0 {
		s += fmt.Sprintf(":%d", p.Line)
		if p.Column > 0 {
			s += fmt.Sprintf(":%d", p.Column)
		}
	}
	return strings.TrimPrefix(s, ":")
}

// Span is a piece of one line of a source: where it stands, the whole line, and how many bytes of it are meant.
type Span struct {
	Position
	Source string
	Length int
}

// Cut narrows a span to length bytes at offset, kept inside the span.
func (s Span) Cut(offset, length int) Span {
	if offset < 0 || offset > s.Length {
		return s
	}
	s.Length = max(min(length, s.Length-offset), 0)
	s.Column += offset
	return s
}

// Text is the piece of the line that the span covers, "" when it is not known.
func (s Span) Text() string {
	from, to := s.Column-1, s.Column-1+s.Length
	if from < 0 || to > len(s.Source) {
		return ""
	}
	return s.Source[from:to]
}

// Error is one fault of a schema. Its zero Span means that the place is not known.
type Error struct {
	Span
	Message string
	Hint    string // what to do about it, "" when the message says it
	Err     error  // what was wrong below, may be nil
}

// Error prints the place and the message on one line.
func (e *Error) Error() string {
	if at := e.Position.String(); at != "" {
		return at + ": " + e.Message
	}
	return e.Message
}

// Unwrap returns the error below.
func (e *Error) Unwrap() error { return e.Err }

// longestShown bounds the source line that Format repeats; a longer one is left out.
const longestShown = 400

// Format prints the fault for a person: place and message, the source line with a caret line below the wrong piece, and
// the hint. It ends in a line break.
func (e *Error) Format() string {
	var b strings.Builder
	b.WriteString(e.Error() + "\n")
	if line := strings.TrimRight(e.Source, "\r\n"); line != "" && len(line) <= longestShown && e.Column > 0 && e.Column <= len(line)+1 {
		before := line[:e.Column-1]
		carets := 1
		if end := e.Column - 1 + e.Length; e.Length > 0 && end <= len(line) {
			carets = len([]rune(line[e.Column-1 : end]))
		}
		// Tabs are repeated, so that the caret stands below its piece whatever their width.
		pad := strings.Map(func(r rune) rune {
			if r == '\t' {
				return r
			}
			return ' '
		}, before)
		b.WriteString("    " + line + "\n    " + pad + strings.Repeat("^", carets) + "\n")
	}
	if e.Hint != "" {
		b.WriteString("hint: " + e.Hint + "\n")
	}
	return b.String()
}

// Errors are all the faults that were found. An empty one is no error; use Err to return it.
type Errors []*Error

// Error prints each fault on a line.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults for errors.As.
func (es Errors) Unwrap() []error {
	list := make([]error, len(es))
	for i, e := range es {
		list[i] = e
	}
	return list
}

// Err returns nil when there is no fault.
func (es Errors) Err() error {
	if len(es) == 0 {
		return nil
	}
	return es
}

// Format prints all faults as Error.Format does.
func (es Errors) Format() string {
	var b strings.Builder
	for _, e := range es {
		b.WriteString(e.Format())
	}
	return b.String()
}

// Sort puts the faults in the order of their places.
func (es Errors) Sort() {
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
		)
	})
}

func (es *Errors) add(at Span, hint, format string, args ...any) {
	*es = append(*es, &Error{Span: at, Hint: hint, Message: fmt.Sprintf(format, args...)})
}
