// Package devtest gives tests real Postgres databases, a new one in milliseconds.
//
// The server is, in this order: the one DATABASE_URL names; a private one from local programs; a container. It is started
// once per test process, on first use, and ends with the process however that ends, so nothing needs a TestMain. Without
// any of them tests are skipped with one line that says what to install; CARILLON_TEST_POSTGRES=required makes that a
// failure, CARILLON_TEST_POSTGRES=container forces the container.
//
// It must never know a schema: callers bring what fills a template. On a server that was only given by URL it creates and
// drops databases of its own naming and touches no other.
package devtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/devdb"
)

const (
	prefix = "carillon_test_"
	// bound is for one statement, including the wait of CREATE DATABASE for the last client of a template (5 s).
	bound = 30 * time.Second
	// leftover is the age at which a database of an earlier test process is dropped. Only templates on a server given by
	// URL get there: no hook runs at the end of a test process.
	leftover = 24 * time.Hour
)

// errNone means that this machine offers no Postgres, which is a reason to skip.
var errNone = errors.New("no Postgres for tests: set DATABASE_URL, or install PostgreSQL 15+ (Debian: apt-get install postgresql), or start Docker")

// server is the shared one; its error is remembered too.
var server = sync.OnceValues(func() (string, error) { return find(os.Getenv) })

// URL is the URL of a database on the server that all tests of this process share. Use it to reach the server; for tables
// take Database or Template. Safe for concurrent use, as the others.
func URL(t testing.TB) string {
	t.Helper()
	admin, err := server()
	if errors.Is(err, errNone) && os.Getenv("CARILLON_TEST_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

// Database returns the URL of a new empty database, dropped when the test is over.
func Database(t testing.TB) string {
	t.Helper()
	return create(t, URL(t), "template0")
}

// template is a database that is prepared once per process.
type template struct {
	prepared sync.Once
	name     string
	err      error
}

var (
	templatesMu sync.Mutex
	templates   = map[string]*template{}
)

// Template returns the URL of a new copy of a database that prepare filled, dropped when the test is over. prepare runs
// once per process and name, must close its connections, and its error fails every test that asks for the name.
func Template(t testing.TB, name string, prepare func(url string) error) string {
	t.Helper()
	admin := URL(t)
	templatesMu.Lock()
	tmpl := templates[name]
	if tmpl == nil {
		tmpl = &template{}
		templates[name] = tmpl
	}
	templatesMu.Unlock()

	tmpl.prepared.Do(func() {
		tmpl.err = errors.New("prepare did not return") // a panic or FailNow in it
		tmpl.name, tmpl.err = makeTemplate(admin, prepare)
	})
	if tmpl.err != nil {
		t.Fatalf("prepare database template %q: %v", name, tmpl.err)
	}
	return create(t, admin, tmpl.name)
}

func makeTemplate(admin string, prepare func(url string) error) (string, error) {
	name := newName()
	if err := createFrom(admin, name, "template0"); err != nil {
		return "", err
	}
	if err := prepare(withDatabase(admin, name)); err != nil {
		return "", errors.Join(err, drop(admin, name))
	}
	// A later client would make every copy fail after a wait of 5 s.
	return name, execute(admin, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false")
}

func create(t testing.TB, admin, from string) string {
	t.Helper()
	name := newName()
	if err := createFrom(admin, name, from); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(admin, name); err != nil {
			t.Error(err)
		}
	})
	return withDatabase(admin, name)
}

func createFrom(admin, name, from string) error {
	statement := "CREATE DATABASE " + name + " TEMPLATE " + from
	if from == "template0" { // the same on every server
		statement += " ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
	}
	if err := execute(admin, statement); err != nil {
		return fmt.Errorf("create a test database: %w", err)
	}
	return nil
}

// drop cuts off clients that a failed test left.
func drop(admin, name string) error {
	if err := execute(admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop a test database: %w", err)
	}
	return nil
}

// newName needs no quoting: the prefix, the time in hex, random letters and digits.
func newName() string {
	return prefix + strconv.FormatInt(time.Now().Unix(), 16) + "_" + strings.ToLower(rand.Text()[:12])
}

// madeAt reads the time out of a name that newName gave.
func madeAt(name string) (time.Time, bool) {
	stamp, random, ok := strings.Cut(strings.TrimPrefix(name, prefix), "_")
	seconds, err := strconv.ParseInt(stamp, 16, 64)
	if !strings.HasPrefix(name, prefix) || !ok || err != nil || len(random) != 12 {
		return time.Time{}, false
	}
	return time.Unix(seconds, 0), true
}

func execute(admin, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// withDatabase names another database in a URL or in a list of key=value words, of which the last counts.
func withDatabase(dsn, database string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return dsn + " dbname=" + database
	}
	u.Path = "/" + database
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.RawQuery = query.Encode()
	return u.String()
}

// find returns the URL of a server, started where need be.
func find(getenv func(string) string) (string, error) {
	wish := getenv("CARILLON_TEST_POSTGRES")
	switch wish {
	case "", "required", "container":
	default:
		return "", fmt.Errorf("CARILLON_TEST_POSTGRES=%s: want required or container", wish)
	}
	if wish == "container" {
		return startContainer()
	}
	if given := getenv("DATABASE_URL"); given != "" {
		if err := dropLeftovers(given, time.Now()); err != nil {
			return "", fmt.Errorf("use DATABASE_URL for tests: %w", err)
		}
		return given, nil
	}
	admin, err := startPrivate()
	if !errors.Is(err, devdb.ErrNoPostgres) {
		return admin, err
	}
	if !dockerRuns() {
		return "", errNone
	}
	return startContainer()
}

// startPrivate starts a server that nobody closes: its watchdog does, at the end of the process.
func startPrivate() (string, error) {
	cfg := devdb.Config{
		DataDir:        memory(),
		Temporary:      true,
		NoSync:         true,
		MaxConnections: 300,
		Settings:       map[string]string{"max_wal_size": "64MB"},
		Logger:         slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if cache, err := os.UserCacheDir(); err == nil {
		cfg.CacheDir = filepath.Join(cache, "carillon", "postgres-initdb")
	}
	s, err := devdb.Start(context.Background(), cfg)
	if err != nil {
		return "", err
	}
	return s.URL(), nil
}

// memory is a directory in memory with room for a server, or "" for the system's temporary directory. A new database is
// some 300 new files: 8 ms in memory, 270 ms on the slowest disk seen. TMPDIR is obeyed.
func memory() string {
	const shm, room = "/dev/shm", 1 << 30
	if os.Getenv("TMPDIR") == "" && free(shm) >= room {
		return shm
	}
	return ""
}

// dropLeftovers drops databases of test processes that ended long ago. One that is still in use stays.
func dropLeftovers(admin string, now time.Time) error {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `SELECT datname FROM pg_database WHERE starts_with(datname::text, $1)`, prefix)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		if made, ok := madeAt(name); ok && now.Sub(made) > leftover {
			// Another process may be dropping it too, or somebody uses it: either is theirs to care for.
			_, _ = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize())
		}
	}
	return nil
}
