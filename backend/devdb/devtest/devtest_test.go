package devtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/devdb"
)

func TestMain(m *testing.M) {
	if end := os.Getenv("DEVTEST_CHILD"); end != "" {
		child(end) // does not return
	}
	os.Exit(m.Run())
}

// child is a test process that uses the shared server and then ends in some way.
func child(end string) {
	admin, err := server()
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	fmt.Println(admin)
	switch end {
	case "panic": // so ends a -timeout too
		panic("on purpose")
	case "killed":
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	}
	os.Exit(0)
}

func TestSharedServerEndsWithTheTestProcess(t *testing.T) {
	if _, _, err := devdb.FindBinaries(""); err != nil {
		t.Skip(err)
	}
	for _, end := range []string{"exit", "panic", "killed"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			temporary := openDir(t)
			said := runChild(t, end, "TMPDIR="+temporary, "DATABASE_URL=", "CARILLON_TEST_POSTGRES=")
			u, err := url.Parse(said)
			if err != nil || u.Host == "" {
				t.Fatalf("child said %q", said)
			}
			eventually(t, "the port is closed", func() bool {
				conn, err := net.Dial("tcp", u.Host)
				if err == nil {
					conn.Close()
				}
				return err != nil
			})
			eventually(t, "the data are gone", func() bool {
				left, err := filepath.Glob(filepath.Join(temporary, "carillon-postgres-*"))
				return err == nil && len(left) == 0
			})
		})
	}
}

func TestForcedContainerFailsWithoutDocker(t *testing.T) {
	t.Parallel()
	said := runChild(t, "exit", "CARILLON_TEST_POSTGRES=container", "DOCKER_HOST=tcp://127.0.0.1:1", "HOME="+t.TempDir())
	if !strings.Contains(said, "start postgres:17-alpine in a container") {
		t.Errorf("child said %q", said)
	}
}

func TestDatabasesAreSeparateAndDropped(t *testing.T) {
	admin := URL(t)
	var inner string
	t.Run("one", func(t *testing.T) {
		inner = Database(t)
		run(t, inner, `CREATE TABLE mine (n int)`)
		run(t, Database(t), `CREATE TABLE mine (n int)`)
		// Left open: the drop must not mind.
		if _, err := pgx.Connect(context.Background(), inner); err != nil {
			t.Error(err)
		}
	})
	if conn, err := pgx.Connect(t.Context(), inner); err == nil {
		conn.Close(t.Context())
		t.Error("the database is still there")
	}
	run(t, admin, `SELECT 1`)
}

func TestTemplateIsPreparedOnceAndCopied(t *testing.T) {
	var prepared atomic.Int32
	var copies sync.Map
	t.Run("copies", func(t *testing.T) {
		for i := range 8 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				db := Template(t, "numbers", func(url string) error {
					prepared.Add(1)
					run(t, url, `CREATE TABLE numbers (n int PRIMARY KEY)`, `INSERT INTO numbers VALUES (7)`)
					return nil
				})
				run(t, db, `INSERT INTO numbers VALUES (8)`) // fails in a database that another copy wrote to
				if _, twice := copies.LoadOrStore(db, true); twice {
					t.Errorf("%s was given out twice", db)
				}
			})
		}
	})
	if n := prepared.Load(); n != 1 {
		t.Errorf("prepared %d times", n)
	}
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestFailedTemplateFailsEveryTestThatWantsIt(t *testing.T) {
	URL(t)
	broken := errors.New("no such migration")
	for name, prepare := range map[string]func(string) error{
		"no such migration":      func(string) error { return broken },
		"prepare did not return": func(string) error { runtime.Goexit(); return nil },
	} {
		for try := range 2 {
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				Template(r, name, prepare)
			}()
			<-done
			// A prepare that does not return has failed its own test already; the next one is told.
			reason := strings.Replace(r.said, fmt.Sprintf("%q", name), "", 1)
			if first := try == 0 && name == "prepare did not return"; !first && !strings.Contains(reason, name) {
				t.Errorf("try %d said %q, want the reason %q", try, r.said, name)
			}
		}
	}
}

func TestServerByURLKeepsWhatIsNotOurs(t *testing.T) {
	admin := URL(t)
	now := time.Now()
	old, young := fmt.Sprintf("%s%x_aaaabbbbcccc", prefix, now.Add(-25*time.Hour).Unix()), newName()
	theirs, odd := "theirs_"+strings.TrimPrefix(young, prefix), prefix+"of_a_person"
	for _, name := range []string{old, young, theirs, odd} {
		run(t, admin, `CREATE DATABASE `+name)
		t.Cleanup(func() { run(t, admin, `DROP DATABASE IF EXISTS `+name) })
	}
	got, err := find(func(name string) string { return map[string]string{"DATABASE_URL": admin}[name] })
	if err != nil || got != admin {
		t.Fatalf("found %q, %v", got, err)
	}
	for name, want := range map[string]bool{old: false, young: true, theirs: true, odd: true} {
		conn, err := pgx.Connect(t.Context(), withDatabase(admin, name))
		if err == nil {
			conn.Close(t.Context())
		}
		if (err == nil) != want {
			t.Errorf("database %s: %v, want it kept: %t", name, err, want)
		}
	}
}

func TestFindRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	for _, env := range []map[string]string{
		{"CARILLON_TEST_POSTGRES": "sqlite"},
		{"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none?connect_timeout=2"},
	} {
		if got, err := find(func(name string) string { return env[name] }); err == nil {
			t.Errorf("%v: found %s", env, got)
		}
	}
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://a:b@h:1/old?sslmode=disable": "postgres://a:b@h:1/new?sslmode=disable",
		"postgresql://h":                         "postgresql://h/new",
		"postgres://h/?dbname=old&user=a":        "postgres://h/new?user=a",
		"host=h dbname=old":                      "host=h dbname=old dbname=new",
	} {
		got := withDatabase(dsn, "new")
		if got != want {
			t.Errorf("%s: %s, want %s", dsn, got, want)
		}
		if cfg, err := pgx.ParseConfig(got); err != nil || cfg.Database != "new" {
			t.Errorf("%s: pgx reads %+v, %v", got, cfg, err)
		}
	}
}

func BenchmarkDatabase(b *testing.B) {
	admin := URL(b)
	for b.Loop() {
		name := newName()
		if err := errors.Join(createFrom(admin, name, "template0"), drop(admin, name)); err != nil {
			b.Fatal(err)
		}
	}
}

// openDir is a directory that the server's account may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devtest-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// runChild returns the first line that the child printed.
func runChild(t *testing.T, end string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "DEVTEST_CHILD="+end)...)
	var out bytes.Buffer
	cmd.Stdout = &out
	_ = cmd.Run() // most ends are failures
	line, _, _ := strings.Cut(out.String(), "\n")
	return line
}

func run(t *testing.T, url string, statements ...string) {
	t.Helper()
	ctx := context.Background() // also in cleanups
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(25 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
