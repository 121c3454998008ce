package devdb_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"carillon/backend/devdb"
)

func itoa(n int) string { return strconv.Itoa(n) }

// held is what a child process says about the server it holds.
type held struct {
	URL string
	PID int
}

// hold is the child: it starts a server, says so, and waits for its end.
func hold() {
	s, err := devdb.Start(context.Background(), devdb.Config{
		DataDir: os.Getenv("DEVDB_TEST_HOLD"), Temporary: os.Getenv("DEVDB_TEST_TEMPORARY") != "", NoSync: true, Logger: quiet,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(held{URL: s.URL(), PID: s.PID()})
	select {}
}

// child starts a process that holds a server on dir.
func child(t *testing.T, dir string, env ...string) (*exec.Cmd, held) {
	t.Helper()
	if _, _, err := devdb.FindBinaries(""); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "DEVDB_TEST_HOLD="+dir)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var h held
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	if err != nil {
		t.Fatalf("child: %v", err)
	}
	return cmd, h
}

func TestServerEndsWithItsKilledOwner(t *testing.T) {
	t.Parallel()
	parent := dataDir(t)
	cmd, h := child(t, parent, "DEVDB_TEST_TEMPORARY=yes")
	at := address(t, h.URL)
	if !processLives(h.PID) || !listens(at) {
		t.Fatal("the child holds no server")
	}
	connect(t, h.URL) // an open connection does not keep it
	// The whole group, as a terminal or a supervisor does: the watchdog must not be in it.
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server ends", func() bool { return !processLives(h.PID) && !listens(at) })
	eventually(t, "the temporary directory is gone", func() bool {
		left, err := os.ReadDir(parent)
		return err == nil && len(left) == 0
	})
}

func TestDirectoryIsUsableRightAfterItsOwnerWasKilled(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	cmd, h := child(t, dir)
	run(t, h.URL, `CREATE TABLE kept (n int)`, `INSERT INTO kept VALUES (7)`)
	kill(t, cmd.Process.Pid)
	_ = cmd.Wait()

	s := start(t, devdb.Config{DataDir: dir, NoSync: true})
	if processLives(h.PID) {
		t.Error("two servers on one directory")
	}
	var n int
	if err := connect(t, s.URL()).QueryRow(t.Context(), `SELECT n FROM kept`).Scan(&n); err != nil || n != 7 {
		t.Errorf("kept %d, %v", n, err)
	}
}

// Where even the watchdog was killed, the server lives on without an owner, and the next start takes the directory over.
func TestServerWithoutOwnerIsTakenOver(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	cmd, h := child(t, dir)
	kill(t, watchdogOf(t, cmd.Process.Pid))
	kill(t, cmd.Process.Pid)
	_ = cmd.Wait()
	if !processLives(h.PID) {
		t.Fatal("the test needs a server without an owner")
	}
	s := start(t, devdb.Config{DataDir: dir, NoSync: true})
	if processLives(h.PID) {
		t.Error("two servers on one directory")
	}
	run(t, s.URL(), `SELECT 1`)
}

// An unfinished initialisation is not taken for a cluster.
func TestUnfinishedClusterIsMadeAnew(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	unfinished := filepath.Join(dir, "cluster.new")
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(unfinished, "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, start(t, devdb.Config{DataDir: dir, NoSync: true}).URL(), `SELECT 1`)
}

func watchdogOf(t *testing.T, owner int) int {
	t.Helper()
	out, err := exec.Command("sh", "-c", `ps -A -o pid=,ppid=,command= | awk -v p="$1" '$2 == p && /carillon-postgres-watchdog/ {print $1}'`, "sh", itoa(owner)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(out), &pid); err != nil {
		t.Fatalf("no watchdog of %d: %v", owner, err)
	}
	return pid
}
