package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"carillon/backend/store/internal/sqlc"
)

// pool is the connections of one kind of work, with its own settings. Straight to Postgres the settings are the session's. Behind a
// pooler in transaction mode (pgbouncer) there is no session: settings at the start are refused or ignored, and prepared
// statements are another client's. There each piece of work is a transaction that begins with its settings.
type pool struct {
	*pgxpool.Pool
	begin string // "BEGIN; SET LOCAL ..", behind a pooler; otherwise empty
}

// settings that a pooler keeps for its clients; the others travel with each transaction.
var pooled = []string{"application_name", "timezone"}

// behindPooler changes a pool's configuration for a pooler in transaction mode, and returns how its transactions begin.
func behindPooler(cfg *pgx.ConnConfig) (begin string) {
	// Types are asked for once and remembered; the statements themselves are parsed anew each time.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	local := []string{"BEGIN"}
	for _, k := range slices.Sorted(maps.Keys(cfg.RuntimeParams)) {
		if slices.Contains(pooled, k) {
			continue
		}
		if !strings.HasPrefix(k, "tcp_") { // of the pooler's own connections
			local = append(local, fmt.Sprintf("SET LOCAL %s = '%s'", k, cfg.RuntimeParams[k]))
		}
		delete(cfg.RuntimeParams, k)
	}
	return strings.Join(local, "; ")
}

// isPooler asks whether the database is reached through a pooler that keeps no sessions: it refuses settings at the
// start, or lets them vanish.
func isPooler(ctx context.Context, cfg *pgx.ConnConfig) (bool, error) {
	const probe = "lock_timeout"
	cfg = cfg.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Code == "08P01" && strings.Contains(refused.Message, "unsupported startup parameter") {
			return true, nil
		}
		return false, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	var kept bool
	err = c.QueryRow(ctx, "SELECT setting = $1 FROM pg_settings WHERE name = '"+probe+"'", cfg.RuntimeParams[probe]).Scan(&kept)
	return !kept, err
}

func (s *Store) q(p *pool) *sqlc.Queries {
	if p.begin != "" {
		return sqlc.New(single{p})
	}
	return sqlc.New(p.Pool)
}

// tx runs work in one transaction on the API connections. Its error is wrapped by the caller.
func (s *Store) tx(ctx context.Context, work func(*sqlc.Queries) error) error {
	return inTx(ctx, s.api, work)
}

func inTx(ctx context.Context, p *pool, work func(*sqlc.Queries) error) error {
	return pgx.BeginTxFunc(ctx, p.Pool, pgx.TxOptions{BeginQuery: p.begin}, func(tx pgx.Tx) error { return work(sqlc.New(tx)) })
}

// single runs each statement as a transaction of its own, behind a pooler. An answer is read whole before the commit, so
// that an error of the commit is the statement's.
type single struct{ p *pool }

func (s single) tx(ctx context.Context, work func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.p.Pool, pgx.TxOptions{BeginQuery: s.p.begin}, work)
}

func (s single) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	err = s.tx(ctx, func(tx pgx.Tx) error {
		tag, err = tx.Exec(ctx, sql, args...)
		return err
	})
	return tag, err
}

func (s single) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	a := &answer{}
	err := s.tx(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		a.fields, a.types = slices.Clone(rows.FieldDescriptions()), tx.Conn().TypeMap()
		for rows.Next() {
			a.rows = append(a.rows, cloneRow(rows.RawValues()))
		}
		rows.Close()
		a.tag = rows.CommandTag()
		return rows.Err()
	})
	return a, err
}

func (s single) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := s.Query(ctx, sql, args...)
	return first{rows, err}
}

func cloneRow(raw [][]byte) [][]byte {
	row := make([][]byte, len(raw))
	for i, v := range raw {
		if v != nil {
			row[i] = append([]byte{}, v...)
		}
	}
	return row
}

// answer is the rows of a statement whose transaction is over.
type answer struct {
	fields []pgconn.FieldDescription
	types  *pgtype.Map
	rows   [][][]byte
	at     int
	tag    pgconn.CommandTag
	err    error
}

func (a *answer) Close()                                       { a.at = len(a.rows) + 1 }
func (a *answer) Err() error                                   { return a.err }
func (a *answer) CommandTag() pgconn.CommandTag                { return a.tag }
func (a *answer) FieldDescriptions() []pgconn.FieldDescription { return a.fields }
func (a *answer) RawValues() [][]byte                          { return a.rows[a.at-1] }
func (a *answer) Conn() *pgx.Conn                              { return nil }
func (a *answer) TypeMap() *pgtype.Map                         { return a.types }

func (a *answer) Next() bool {
	a.at++
	return a.err == nil && a.at <= len(a.rows)
}

func (a *answer) Scan(dest ...any) error {
	a.err = pgx.ScanRow(a.types, a.fields, a.RawValues(), dest...)
	return a.err
}

func (a *answer) Values() ([]any, error) { return nil, errors.ErrUnsupported }

type first struct {
	rows pgx.Rows
	err  error
}

func (f first) Scan(dest ...any) error {
	if f.err != nil {
		return f.err
	}
	if !f.rows.Next() {
		return pgx.ErrNoRows
	}
	return f.rows.Scan(dest...)
}
