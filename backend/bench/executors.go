package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"carillon/backend/core/cron"
	"carillon/backend/store"
)

const controllerKey = "ctl-7800-0badcafe" // as long as a real one

// ceiling is a hand-written loop that claims by compare-and-set and ends by run id, and nothing else.
type ceiling struct {
	conns  [lanes]*pgx.Conn
	minted [lanes]uint64
	claim  string
	named  bool // the claim takes the controller's name
}

const (
	from = `FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::uuid[]) AS run_id, unnest($3::timestamptz[]) AS expected,
		             unnest($4::timestamptz[]) AS next_after) a
		WHERE j.id = a.id AND j.state = 'idle' AND j.next_execution = a.expected`
	// trueClaim leaves a row that says what runs, since when, until when and where, as the table demands of it.
	trueClaim = `UPDATE carillon.cron_jobs j SET state = 'executing', run_id = a.run_id, next_execution = a.next_after,
		run_slot = a.expected, started_at = now(), deadline_at = now() + interval '6 minutes', run_deployment = j.deployment_id,
		controller = $5 ` + from
	// bareClaim leaves what stood there of the run before.
	bareClaim = `UPDATE carillon.cron_jobs j SET state = 'executing', run_id = a.run_id, next_execution = a.next_after ` + from
	plainEnd  = `UPDATE carillon.cron_jobs j SET state = 'idle'
		FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::uuid[]) AS run_id) a
		WHERE j.id = a.id AND j.run_id = a.run_id`
)

func openCeiling(ctx context.Context, url string) (executor, error) {
	return openLoop(ctx, url, &ceiling{claim: trueClaim, named: true})
}

func openBare(ctx context.Context, url string) (executor, error) {
	return openLoop(ctx, url, &ceiling{claim: bareClaim})
}

func openLoop(ctx context.Context, url string, c *ceiling) (executor, error) {
	for i := range c.conns {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			c.close()
			return nil, fmt.Errorf("connect: %w", err)
		}
		c.conns[i] = conn
		c.minted[i] = uint64(time.Now().UnixNano())
	}
	return c, nil
}

func (c *ceiling) close() {
	for _, conn := range c.conns {
		if conn != nil {
			conn.Close(context.Background())
		}
	}
}

func (c *ceiling) execute(ctx context.Context, lane int, b *batch) error {
	n := len(b.ids)
	runs, expected, after := make([]pgtype.UUID, n), make([]time.Time, n), make([]time.Time, n)
	for i := range b.ids {
		c.minted[lane]++
		runs[i].Valid = true
		binary.BigEndian.PutUint64(runs[i].Bytes[:], c.minted[lane])
		runs[i].Bytes[15] = byte(lane)
		expected[i] = b.slot(i)
		after[i] = expected[i].Add(time.Second)
	}
	args := []any{b.ids, runs, expected, after}
	if c.named {
		args = append(args, controllerKey)
	}
	won, err := c.conns[lane].Exec(ctx, c.claim, args...)
	if err != nil || int(won.RowsAffected()) != n {
		return notAll("claimed", int(won.RowsAffected()), n, err)
	}
	ended, err := c.conns[lane].Exec(ctx, plainEnd, b.ids, runs)
	if err != nil || int(ended.RowsAffected()) != n {
		return notAll("ended", int(ended.RowsAffected()), n, err)
	}
	b.advance()
	return nil
}

func notAll(what string, n, of int, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%d of %d rows were %s: the benchmark is wrong", n, of, what)
}

// product is the store as the scheduler uses it: claims, the rows of those that were lost, ends with the ledger.
type product struct {
	*store.Store
	probed bool // a second owner tries each slot when it is over
}

func openProduct(ctx context.Context, url string) (executor, error) {
	s, err := store.Open(ctx, store.Config{URL: url, Application: controllerKey, ClaimConns: lanes, EndConns: lanes})
	if err != nil {
		return nil, err
	}
	return product{s, false}, nil
}

func openProbed(ctx context.Context, url string) (executor, error) {
	e, err := openProduct(ctx, url)
	if err != nil {
		return nil, err
	}
	return product{e.(product).Store, true}, nil
}

func (p product) close() { p.Store.Close() }

func (p product) execute(ctx context.Context, _ int, b *batch) error {
	claims, n := claimsOf(b), len(b.ids)
	won, err := p.claim(ctx, claims)
	if err != nil || won != n {
		return notAll("claimed", won, n, err)
	}
	ends := make([]cron.End, n)
	for i, c := range claims {
		ends[i] = cron.End{JobID: c.JobID, RunID: c.RunID, Slot: c.Slot, Verdict: cron.Succeeded, Version: c.Version}
	}
	answers, err := p.EndCronJobs(ctx, ends)
	if err != nil {
		return err
	}
	accepted := 0
	for _, a := range answers {
		if a.Accepted {
			accepted++
		}
	}
	if accepted != n {
		return notAll("ended", accepted, n, nil)
	}
	if p.probed {
		if won, err := p.claim(ctx, claimsOf(b)); err != nil || won != 0 {
			return errors.Join(err, notAll("claimed twice", won, 0, nil))
		}
	}
	b.advance()
	return nil
}

// claim claims, and reads what was lost.
func (p product) claim(ctx context.Context, claims []cron.Claim) (int, error) {
	won, err := p.StartCronJobs(ctx, controllerKey, cron.HardGrace, claims)
	if err != nil || len(won) == len(claims) {
		return len(won), err
	}
	mine := make(map[int64]bool, len(won))
	for _, w := range won {
		mine[w.JobID] = true
	}
	var lost []int64
	for _, c := range claims {
		if !mine[c.JobID] {
			lost = append(lost, c.JobID)
		}
	}
	_, _, err = p.GetCronJobs(ctx, lost)
	return len(won), err
}

// claimsOf is what a scheduler would send for these rows.
func claimsOf(b *batch) []cron.Claim {
	claims := make([]cron.Claim, len(b.ids))
	for i, id := range b.ids {
		slot := b.slot(i)
		claims[i] = cron.Claim{
			JobID: id, Version: 1, Expected: slot, Slot: slot, Next: slot.Add(time.Second), RunID: cron.RunID(uuid.Must(uuid.NewV7())),
		}
	}
	return claims
}
