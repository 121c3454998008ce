package main

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
)

// intake is the shortest way to share inserts: what arrives while a statement is under way is the next one. Each
// connection is a lane; there is no timer.
type intake struct {
	mu     sync.Mutex
	more   *sync.Cond
	wait   []intakeItem
	closed bool
	lanes  sync.WaitGroup
}

type intakeItem struct {
	payload []byte
	done    chan error
}

func newIntake(conns []*pgx.Conn, insert func(context.Context, *pgx.Conn, [][]byte) error) *intake {
	in := &intake{}
	in.more = sync.NewCond(&in.mu)
	for _, conn := range conns {
		in.lanes.Go(func() {
			for items := in.take(); items != nil; items = in.take() {
				payloads := make([][]byte, len(items))
				for i, it := range items {
					payloads[i] = it.payload
				}
				err := insert(context.Background(), conn, payloads)
				for _, it := range items {
					it.done <- err
				}
			}
		})
	}
	return in
}

// take waits for something; nil: closed.
func (in *intake) take() []intakeItem {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.wait) == 0 && !in.closed {
		in.more.Wait()
	}
	n := min(len(in.wait), batch)
	items := in.wait[:n:n]
	in.wait = in.wait[n:]
	if n == 0 {
		return nil
	}
	return items
}

func (in *intake) put(payload []byte) error {
	it := intakeItem{payload, make(chan error, 1)}
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		return errors.New("closed")
	}
	in.wait = append(in.wait, it)
	in.mu.Unlock()
	in.more.Signal()
	return <-it.done
}

func (in *intake) close() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.more.Broadcast()
	in.lanes.Wait()
}
