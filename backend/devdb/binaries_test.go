package devdb

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// install writes server programs that only know their version.
func install(t *testing.T, dir, version string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"postgres", "initdb"} {
		script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + " (Somewhere)'\n"
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBinariesAreFoundAndResolved(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	old, good, link := filepath.Join(root, "14", "bin"), filepath.Join(root, "99", "bin"), filepath.Join(root, "link")
	install(t, old, "14.9")
	install(t, good, "99.1")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	if dir, _, err := FindBinaries(link); dir != good || err != nil {
		t.Errorf("named: %q, %v; want %q", dir, err, good)
	}
	if _, looked, err := FindBinaries(old); !errors.Is(err, ErrNoPostgres) || len(looked) != 1 || !strings.Contains(looked[0], "14.9 is too old") {
		t.Errorf("too old: %v, %v", looked, err)
	}
	if _, _, err := FindBinaries(root); !errors.Is(err, ErrNoPostgres) || !strings.Contains(err.Error(), root) {
		t.Errorf("empty: %v", err)
	}

	t.Setenv("PATH", link+":/usr/bin:/bin")
	if err := os.Symlink("/nowhere", filepath.Join(root, "pg_config")); err != nil {
		t.Fatal(err)
	}
	dirs := candidates(t.Context())
	if len(dirs) == 0 || dirs[0] != link && (len(dirs) < 2 || dirs[1] != link) { // a pg_config of the system comes first
		t.Errorf("PATH is not among the first: %v", dirs)
	}
}

func TestMissingPostgresSaysWhatToDo(t *testing.T) {
	usual := installs
	installs = []string{filepath.Join(t.TempDir(), "*", "bin")}
	t.Cleanup(func() { installs = usual })
	t.Setenv("PATH", "/nowhere")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	_, _, err := FindBinaries("")
	if !errors.Is(err, ErrNoPostgres) {
		t.Fatal(err)
	}
	for _, want := range []string{"DATABASE_URL", "install Postgres 15", "apt-get install postgresql", installs[0]} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	// The newest of several is taken, by number and not by letter.
	install(t, filepath.Join(filepath.Dir(filepath.Dir(installs[0])), "15", "bin"), "15.1")
	install(t, filepath.Join(filepath.Dir(filepath.Dir(installs[0])), "9", "bin"), "9.6")
	t.Setenv("PATH", "/nowhere:/bin") // for sh
	if b, looked, err := findBinaries(t.Context(), ""); err == nil && b.version != "15.1" && strings.HasPrefix(b.dir, filepath.Dir(installs[0])) {
		t.Errorf("took %s, looked %v", b.version, looked)
	}
}

func TestDefaultDataDirFollowsTheStateDirectory(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/some/state")
	if dir, err := DefaultDataDir(); dir != "/some/state/carillon/postgres" || err != nil {
		t.Errorf("%q, %v", dir, err)
	}
	t.Setenv("XDG_STATE_HOME", "relative")
	t.Setenv("HOME", "/some/home")
	want := "/some/home/.local/state/carillon/postgres"
	if os.Geteuid() == 0 {
		want = "/var/lib/carillon/postgres"
	}
	if dir, err := DefaultDataDir(); dir != want || err != nil {
		t.Errorf("%q, %v; want %q", dir, err, want)
	}
}

func TestClosedParentDirectoryIsNamed(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(root, "closed")
	if err := os.MkdirAll(filepath.Join(closed, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	other := &account{name: "postgres", uid: 54321, gid: 54321}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := other.reach(filepath.Join(closed, "data")); err == nil || !strings.Contains(err.Error(), "may not enter "+closed) {
		t.Errorf("reach: %v", err)
	}
	owner := &account{uid: uint32(os.Getuid())}
	fi, err := os.Stat(closed)
	if err != nil {
		t.Fatal(err)
	}
	if !owner.mayEnter(fi) || other.mayEnter(fi) {
		t.Errorf("owner %t, other %t", owner.mayEnter(fi), other.mayEnter(fi))
	}
	var self *account
	if err := self.reach("/nowhere"); err != nil {
		t.Errorf("as ourselves nothing is checked: %v", err)
	}
}
