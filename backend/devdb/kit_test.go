package devdb_test

import (
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/devdb"
)

var quiet = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) {
	if os.Getenv("DEVDB_TEST_HOLD") != "" {
		hold() // does not return
	}
	os.Exit(m.Run())
}

// start starts a server that is closed when the test is over.
func start(t *testing.T, cfg devdb.Config) *devdb.Server {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	s, err := devdb.Start(t.Context(), cfg)
	if errors.Is(err, devdb.ErrNoPostgres) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// dataDir is a directory that other users may enter, unlike those of t.TempDir: as root the server is another user.
func dataDir(t *testing.T) string {
	t.Helper()
	parent := ""
	if os.Getenv("TMPDIR") == "" {
		if shm, err := os.Stat("/dev/shm"); err == nil && shm.IsDir() {
			parent = "/dev/shm" // a new cluster is a thousand files
		}
	}
	dir, err := os.MkdirTemp(parent, "devdb-test-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func cacheDir(t *testing.T) string { return filepath.Join(t.TempDir(), "cache") }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(t.Context()) })
	return conn
}

func run(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn := connect(t, url)
	for _, statement := range statements {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	conn.Close(t.Context())
}

func address(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func password(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	word, _ := u.User.Password()
	return word
}

func listens(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// processLives is false for a zombie too: where nobody reaps orphans they stay in the table.
func processLives(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	state, err := exec.Command("ps", "-o", "stat=", "-p", itoa(pid)).Output()
	return err != nil || !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

// sleeper is a process of the user to whom a file belongs.
func sleeper(t *testing.T, file string) int {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	fi, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if st := fi.Sys().(*syscall.Stat_t); os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: st.Uid, Gid: st.Gid}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
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
