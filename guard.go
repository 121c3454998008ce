package carillon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	carillonv1 "carillon/proto/carillon/v1"
)

// guard calls a verb and hears what it says; a panic, also one of its error's own methods, is a failure whose stack goes
// to the log.
func guard(ctx context.Context, fn Handler, payload []byte, run *Run, log *slog.Logger) (s said) {
	defer func() {
		if p := recover(); p != nil {
			s = said{failed: true, text: clean("panic: " + sprint(p))}
			stack := debug.Stack()
			log.Error("verb panicked", "ref", run.Ref, "run", run.ID, "panic", s.text, "stack", string(stack[:min(len(stack), 4<<10)]))
		}
	}()
	output, err := fn(ctx, payload)
	if n := len(output); err == nil && n > maxPayload {
		err = Fail(fmt.Errorf("response: has %d bytes, at most %d are accepted", n, maxPayload))
	}
	if err != nil {
		s = said{failed: true, text: clean(err.Error())}
		errors.As(err, &s.ask)
		return s
	}
	return said{output: output}
}

// sprint is fmt.Sprint for a value whose own methods may panic with something that fmt passes on.
func sprint(v any) (s string) {
	defer func() {
		if recover() != nil {
			s = fmt.Sprintf("a %T that cannot be printed", v)
		}
	}()
	return fmt.Sprint(v)
}

// clean makes a text fit for the ledger: valid UTF-8 without NUL, at most maxError bytes.
func clean(s string) string { return cut(s, maxError) }

func cut(s string, most int) string {
	s = s[:min(len(s), most)] // a character cut in two becomes the "?" of an invalid one
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", " "), "?")
}

// memory keeps the outcomes of the last runs, bounded in number and in bytes of text, so that a repeated call of a
// finished run is answered and not run again. Guarded by desk.mu.
type memory struct {
	byID  map[string]*carillonv1.CallResponse
	ring  []*carillonv1.CallResponse // a circle of outcomes, oldest at next once it is full
	next  int
	bytes int
	most  int
}

func newMemory(entries, bytes int) memory {
	return memory{
		byID: make(map[string]*carillonv1.CallResponse, entries), ring: make([]*carillonv1.CallResponse, entries), most: bytes,
	}
}

func (m *memory) find(id string) *carillonv1.CallResponse { return m.byID[id] }

func (m *memory) keep(resp *carillonv1.CallResponse) {
	if m.byID[resp.GetRunId()] != nil {
		return
	}
	m.drop(m.next)
	m.ring[m.next] = resp
	m.byID[resp.GetRunId()] = resp
	m.bytes += weight(resp)
	m.next = (m.next + 1) % len(m.ring)
	for i := m.next; m.bytes > m.most && i != (m.next+len(m.ring)-1)%len(m.ring); i = (i + 1) % len(m.ring) {
		m.drop(i)
	}
}

func (m *memory) drop(i int) {
	if old := m.ring[i]; old != nil {
		delete(m.byID, old.GetRunId())
		m.bytes -= weight(old)
		m.ring[i] = nil
	}
}

// weight is about what a response costs on the wire and in memory.
func weight(r *carillonv1.CallResponse) int { return len(r.GetError()) + len(r.GetPayload()) + 96 }
