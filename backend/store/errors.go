package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"carillon/backend/core/cron"
)

// Error is what every method of the store returns: what was tried, and what is known of the outcome.
// Postgres errors are classified here and nowhere else.
type Error struct {
	Tried string
	Err   error
	class class
}

type class int

const (
	fatal   class = iota // neither of the below
	retry                // nothing was written; the same call may be made again
	unknown              // the connection was lost in the call: it may have been committed
	data                 // SQLSTATE class 22 or 23: a value was refused, nothing was written
	refused              // one of the closed list of refusals in core/cron
)

func (e *Error) Error() string   { return e.Tried + ": " + e.Err.Error() }
func (e *Error) Unwrap() error   { return e.Err }
func (e *Error) Unknown() bool   { return e.class == unknown }
func (e *Error) Retryable() bool { return e.class == retry }

func wrap(tried string, err error) error {
	if err == nil {
		return nil
	}
	if already := (*Error)(nil); errors.As(err, &already) {
		return fmt.Errorf("%s: %w", tried, err)
	}
	c := classify(err)
	if pe := (*pgconn.ConnectError)(nil); errors.As(err, &pe) {
		err = &unreached{err, pe}
	}
	if c == retry || c == unknown {
		err = fmt.Errorf("%w: %w", cron.ErrUnavailable, err)
	}
	return &Error{Tried: tried, Err: err, class: c}
}

// unreached is a Postgres that nobody could connect to, in one line: pgx tells of each host once for each way to try it.
type unreached struct {
	err error
	pe  *pgconn.ConnectError
}

func (u *unreached) Error() string {
	why := u.pe.Unwrap().Error()
	if lines := strings.Split(why, "\n"); len(lines) > 1 {
		slices.Sort(lines)
		why = strings.Join(slices.Compact(lines), "; ")
	}
	return fmt.Sprintf("connect to database %q as %q: %s", u.pe.Config.Database, u.pe.Config.User, why)
}

func (u *unreached) Unwrap() error { return u.err }

func classify(err error) class {
	for _, known := range []error{cron.ErrNotFound, cron.ErrInvalid, cron.ErrPrecond, cron.ErrExists} {
		if errors.Is(err, known) {
			return refused
		}
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return refused
	}
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return classifyCode(pg.Code)
	}
	if bad := (*pgconn.ParseConfigError)(nil); errors.As(err, &bad) {
		return fatal
	}
	if pgconn.SafeToRetry(err) {
		return retry
	}
	if pe := (*pgconn.ConnectError)(nil); errors.As(err, &pe) {
		return retry
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err) {
		return unknown
	}
	// What is left came from the wire: a reset, an EOF, a protocol error in the middle of an answer.
	return unknown
}

func classifyCode(code string) class {
	switch code {
	case "40001", "40P01", "55P03", "57014", "53300", "57P03", "53400", "25006", "53100", "53200":
		// serialization, deadlock, lock or statement timeout, too many connections, starting up, read-only, full
		return retry
	case "57P01", "57P02", "57P05":
		return unknown // terminated: usually before the commit, not surely
	}
	switch {
	case strings.HasPrefix(code, "08"):
		return unknown
	case strings.HasPrefix(code, "22"), strings.HasPrefix(code, "23"):
		return data
	}
	return fatal
}

func isData(err error) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && e.class == data
}

// isLocked says that a statement waited for a row lock in vain.
func isLocked(err error) bool {
	pg := (*pgconn.PgError)(nil)
	return errors.As(err, &pg) && pg.Code == "55P03"
}

func isDeadlock(err error) bool {
	pg := (*pgconn.PgError)(nil)
	return errors.As(err, &pg) && (pg.Code == "40P01" || pg.Code == "40001")
}
