package storetest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/store"
)

// OpenPooled is Open through a pgbouncer in transaction mode with few server connections; more are lines of its
// configuration. The test is skipped where there is no pgbouncer.
func OpenPooled(t testing.TB, more ...string) DB {
	t.Helper()
	direct := URL(t)
	pooled := pooler(t, direct, more)
	db := open(t, direct, pooled, "")
	return db
}

// pooler starts a pgbouncer before the database and returns the URL of the database through it.
func pooler(t testing.TB, direct string, more []string) string {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		if binary = "/usr/sbin/pgbouncer"; !executable(binary) {
			if os.Getenv("CARILLON_TEST_PGBOUNCER") == "required" {
				t.Fatal("no pgbouncer here")
			}
			t.Skip("no pgbouncer here: install it (Debian: apt-get install pgbouncer) to run this test")
		}
	}
	cfg, err := pgx.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	dir, err := os.MkdirTemp("", "carillon-pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	lines := append([]string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%d user=%s password=%s", cfg.Host, cfg.Port, cfg.User, cfg.Password),
		"[pgbouncer]", "listen_addr = 127.0.0.1", "listen_port = " + port, "unix_socket_dir =", "auth_type = any",
		"pool_mode = transaction", "default_pool_size = 4", "max_client_conn = 500",
	}, more...)
	path := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o755)
	args := []string{"-q", path}
	if os.Geteuid() == 0 { // it refuses to run as root
		args = []string{"-q", "-u", "nobody", path}
	}
	cmd := exec.Command(binary, args...)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { cmd.Wait(); close(gone) }()
	t.Cleanup(func() { cmd.Process.Signal(syscall.SIGKILL); <-gone })
	answers := func() bool {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	for end := time.Now().Add(10 * time.Second); !answers(); {
		select {
		case <-gone:
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("pgbouncer ended: %s", said)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatal("pgbouncer does not answer")
		}
	}
	n, _ := strconv.Atoi(port)
	return (&url.URL{Scheme: "postgres", Host: fmt.Sprintf("127.0.0.1:%d", n), User: url.User(cfg.User), Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}).String()
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&0o111 != 0
}

// open connects a store by one URL, and the pool for looking by another.
func open(t testing.TB, direct, way, zone string) DB {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: way, Application: t.Name(), TimeZone: zone})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return DB{s, looking(t, direct), direct, way, t}
}
