package devdb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"carillon/backend/devdb"
)

func TestGivenURLIsUsedUntouched(t *testing.T) {
	t.Parallel()
	const given = "host=/nowhere dbname=theirs"
	s, err := devdb.Start(t.Context(), devdb.Config{DatabaseURL: given, DataDir: "/nowhere", Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	if s.URL() != given || s.Private() || s.PID() != 0 {
		t.Errorf("URL %q, private %t, pid %d", s.URL(), s.Private(), s.PID())
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := s.StopImmediate(); !errors.Is(err, devdb.ErrNotPrivate) {
		t.Errorf("stop: %v", err)
	}
	if err := s.Restart(t.Context()); !errors.Is(err, devdb.ErrNotPrivate) {
		t.Errorf("restart: %v", err)
	}
}

func TestServerIsDurableAndPrivate(t *testing.T) {
	t.Parallel()
	s := start(t, devdb.Config{DataDir: dataDir(t), MaxConnections: 17, Settings: map[string]string{"work_mem": "5MB"}})
	conn := connect(t, s.URL())
	for setting, want := range map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "TimeZone": "UTC", "log_timezone": "UTC",
		"server_encoding": "UTF8", "lc_messages": "C", "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
		"password_encryption": "scram-sha-256", "max_connections": "17", "work_mem": "5MB",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), `SELECT current_setting($1)`, setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %q, %v; want %q", setting, got, err, want)
		}
	}
	var database, role string
	if err := conn.QueryRow(t.Context(), `SELECT current_database(), current_user`).Scan(&database, &role); err != nil {
		t.Fatal(err)
	}
	if database != "carillon" || role != "carillon" {
		t.Errorf("database %s, role %s", database, role)
	}

	stranger, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	stranger.User = url.UserPassword("carillon", "guess")
	if conn, err := pgx.Connect(t.Context(), stranger.String()); err == nil {
		conn.Close(t.Context())
		t.Error("a wrong password was let in")
	}
}

func TestDataAndPasswordAreKept(t *testing.T) {
	t.Parallel()
	cfg := devdb.Config{DataDir: dataDir(t), NoSync: true}
	first := start(t, cfg)
	run(t, first.URL(), `CREATE TABLE kept (n int)`, `INSERT INTO kept VALUES (7)`)
	pid, at := first.PID(), address(t, first.URL())
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if processLives(pid) || listens(at) || first.PID() != 0 {
		t.Errorf("after Close: process %t, port %t, pid %d", processLives(pid), listens(at), first.PID())
	}
	if err := first.Restart(t.Context()); err == nil {
		t.Error("a closed server started again")
	}
	fi, err := os.Stat(filepath.Join(cfg.DataDir, "password"))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("password file: %v, %v", fi, err)
	}

	second := start(t, cfg)
	var n int
	if err := connect(t, second.URL()).QueryRow(t.Context(), `SELECT n FROM kept`).Scan(&n); err != nil || n != 7 {
		t.Errorf("kept %d, %v", n, err)
	}
	if password(t, first.URL()) != password(t, second.URL()) {
		t.Error("the password changed")
	}
}

func TestSecondServerOnOneDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	cfg := devdb.Config{DataDir: dataDir(t), NoSync: true}
	first := start(t, cfg)
	_, err := devdb.Start(t.Context(), cfg)
	if !errors.Is(err, devdb.ErrInUse) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) || !strings.Contains(err.Error(), cfg.DataDir) {
		t.Errorf("second start: %v", err)
	}
	run(t, first.URL(), `SELECT 1`)
}

func TestCommittedRowsSurviveAnImmediateStop(t *testing.T) {
	t.Parallel()
	s := start(t, devdb.Config{DataDir: dataDir(t)})
	run(t, s.URL(), `CREATE TABLE kept (n int)`, `INSERT INTO kept VALUES (7)`)
	at, pid := address(t, s.URL()), s.PID()
	for range 2 { // the second finds nothing to stop
		if err := s.StopImmediate(); err != nil {
			t.Fatal(err)
		}
	}
	if listens(at) || processLives(pid) || s.PID() != 0 {
		t.Error("it still runs")
	}
	for range 2 { // the second restarts a running server
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := connect(t, s.URL()).QueryRow(t.Context(), `SELECT n FROM kept`).Scan(&n); err != nil || n != 7 {
			t.Errorf("kept %d, %v", n, err)
		}
	}
	if now := s.PID(); now == 0 || now == pid {
		t.Errorf("pid %d, before %d", now, pid)
	}
}

func TestUnexpectedEndIsLoggedAndRestartMendsIt(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	s := start(t, devdb.Config{DataDir: dataDir(t), NoSync: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	conn := connect(t, s.URL()) // its backend outlives the postmaster for a moment
	pid := s.PID()
	kill(t, pid)
	eventually(t, "the end is noticed", func() bool { return s.PID() == 0 })
	eventually(t, "the end is logged", func() bool {
		return strings.Contains(log.String(), `msg="postgres ended" pid=`+strconv.Itoa(pid))
	})
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, s.URL(), `SELECT 1`)
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection survived its server")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "postgres ended"); n != 1 {
		t.Errorf("logged %d ends, want the unexpected one only:\n%s", n, log.String())
	}
}

func TestStalePidFileIsNoObstacle(t *testing.T) {
	t.Parallel()
	for name, pid := range map[string]func(own int, stranger int) int{
		"process gone":        func(own, _ int) int { return own },
		"pid of a stranger":   func(_, stranger int) int { return stranger },
		"pid of this process": func(_, _ int) int { return os.Getpid() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := devdb.Config{DataDir: dataDir(t), NoSync: true, CacheDir: cacheDir(t), Logger: quiet}
			s := start(t, cfg)
			own := s.PID()
			kill(t, own)
			eventually(t, "the end is noticed", func() bool { return s.PID() == 0 })
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(cfg.DataDir, "cluster", "postmaster.pid")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("the test needs the file that a killed postmaster leaves: %v", err)
			}
			_, rest, _ := strings.Cut(string(text), "\n")
			stranger := sleeper(t, path)
			if err := os.WriteFile(path, fmt.Appendf(nil, "%d\n%s", pid(own, stranger), rest), 0o600); err != nil {
				t.Fatal(err)
			}
			again, err := devdb.Start(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			run(t, again.URL(), `SELECT 1`)
			if err := again.Close(); err != nil {
				t.Error(err)
			}
			if !processLives(stranger) {
				t.Error("a stranger was stopped")
			}
		})
	}
}

// A crash of the machine leaves a postmaster.pid without content, at which Postgres itself refuses to start.
func TestEmptyPidFileIsNoObstacle(t *testing.T) {
	t.Parallel()
	cfg := devdb.Config{DataDir: dataDir(t), NoSync: true}
	if err := start(t, cfg).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.DataDir, "cluster", "postmaster.pid"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, start(t, cfg).URL(), `SELECT 1`)
}

func TestDataOfAnotherVersionAreRefused(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	if err := os.Mkdir(filepath.Join(dir, "cluster"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cluster", "PG_VERSION"), []byte("9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := devdb.Start(t.Context(), devdb.Config{DataDir: dir})
	bin, _, _ := devdb.FindBinaries("")
	for _, want := range []string{"made by Postgres 9,", bin + " has version 1", dir} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("start: %v; want %q in it", err, want)
		}
	}
}

func TestClusterOfSomebodyElseIsRefused(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	if err := os.WriteFile(filepath.Join(dir, "PG_VERSION"), []byte("15\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := devdb.Start(t.Context(), devdb.Config{DataDir: dir}); err == nil || !strings.Contains(err.Error(), "made by something else") {
		t.Errorf("start: %v", err)
	}
}

func TestRefusedSettings(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"listen_addresses", "Listen-Addresses", "port", "hba_file", "a=b", ""} {
		if _, err := devdb.Start(t.Context(), devdb.Config{DataDir: dataDir(t), Settings: map[string]string{name: "x"}}); err == nil {
			t.Errorf("setting %q was taken", name)
		}
	}
	for _, cfg := range []devdb.Config{{Port: -1}, {Port: 65536}, {MaxConnections: -1}} {
		if _, err := devdb.Start(t.Context(), cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

// A failed start names the reason that only the server's log has, and leaves the directory free.
func TestFailedStartShowsTheLogAndLeavesNothing(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	cfg := devdb.Config{DataDir: dataDir(t), NoSync: true, CacheDir: cacheDir(t)}

	wrong, busy := cfg, cfg
	wrong.Settings = map[string]string{"work_mem": "banana"}
	busy.Port = port
	for _, try := range []struct {
		cfg  devdb.Config
		want string
	}{{wrong, `"work_mem": "banana"`}, {busy, "could not bind"}} {
		if _, err := devdb.Start(t.Context(), try.cfg); err == nil || !strings.Contains(err.Error(), try.want) {
			t.Errorf("start: %v; want %q in it", err, try.want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := devdb.Start(ended, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("start after cancel: %v", err)
	}
	run(t, start(t, cfg).URL(), `SELECT 1`)
}

func TestTemporaryDirectoryGoesWithTheServer(t *testing.T) {
	t.Parallel()
	parent := dataDir(t)
	s := start(t, devdb.Config{DataDir: parent, Temporary: true, NoSync: true})
	if entries, _ := os.ReadDir(parent); len(entries) != 1 {
		t.Errorf("%d entries", len(entries))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(parent); len(entries) != 0 {
		t.Errorf("left %v", entries)
	}
}

func TestCachedClusterIsCopied(t *testing.T) {
	t.Parallel()
	cfg := devdb.Config{DataDir: dataDir(t), CacheDir: cacheDir(t), Temporary: true, NoSync: true, Logger: quiet}
	marked := func() bool {
		s := start(t, cfg)
		run(t, s.URL(), `SELECT 1`)
		found, _ := filepath.Glob(filepath.Join(cfg.DataDir, "*", "cluster", "mark"))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return len(found) == 1
	}
	marked()
	kept, _ := filepath.Glob(filepath.Join(cfg.CacheDir, "*"))
	if len(kept) != 1 {
		t.Fatalf("kept %v", kept)
	}
	if err := os.WriteFile(filepath.Join(kept[0], "cluster", "mark"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !marked() {
		t.Error("the kept cluster was not copied")
	}
	if err := os.RemoveAll(filepath.Join(kept[0], "cluster")); err != nil {
		t.Fatal(err)
	}
	if marked() { // and the start works all the same
		t.Error("a mark from nowhere")
	}
}

// syncBuffer is a log that goroutines write and the test reads.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
