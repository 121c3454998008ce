package devdb

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// rootDataDir is where root keeps the data: root's home may not be entered by the user that Postgres then runs as.
const rootDataDir = "/var/lib/carillon/postgres"

// cluster is a data directory under our lock and the programs to run it. Only the holder of Server.mu touches it.
//
//	base/cluster      Postgres's own data directory
//	base/password     of the superuser carillon, 0600
//	base/server.log   since the last start; the one before is server.log.1
//	base/lock         held while a Server lives; contains the holder's pid
type cluster struct {
	cfg       Config
	bin       binaries
	base, dir string
	temporary bool
	account   *account
	lock      *os.File
	password  string
	port      int
}

// DefaultDataDir is where the data are kept when nothing else is asked for: $XDG_STATE_HOME/carillon/postgres, else
// ~/.local/state/carillon/postgres, and for root /var/lib/carillon/postgres.
func DefaultDataDir() (string, error) {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) { // its specification says to ignore relative paths
		return filepath.Join(state, "carillon", "postgres"), nil
	}
	if os.Geteuid() == 0 {
		return rootDataDir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a data directory: %w: name one", err)
	}
	return filepath.Join(home, ".local", "state", "carillon", "postgres"), nil
}

// openCluster finds the programs and takes the lock of the data directory. What is inside is prepare's.
func openCluster(ctx context.Context, cfg Config) (_ *cluster, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &cluster{cfg: cfg, port: cfg.Port, temporary: cfg.Temporary}
	if c.bin, _, err = findBinaries(ctx, cfg.BinDir); err != nil {
		return nil, err
	}
	if c.base, err = makeBase(cfg); err != nil {
		return nil, err
	}
	c.dir = filepath.Join(c.base, "cluster")
	if c.account, err = serverAccount(c.dir); err == nil {
		err = errors.Join(c.account.reach(c.base), c.account.reach(c.bin.dir))
	}
	if err == nil {
		c.lock, err = takeLock(filepath.Join(c.base, "lock"))
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// makeBase makes the directory that everything is in. As root, others may enter it but not look around: the server runs
// as another user. An existing directory is left as it is.
func makeBase(cfg Config) (string, error) {
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	base := cfg.DataDir
	if cfg.Temporary {
		base, err := os.MkdirTemp(base, "carillon-postgres-")
		if err == nil {
			err = os.Chmod(base, mode)
		}
		if err != nil {
			return "", fmt.Errorf("make a temporary data directory: %w", err)
		}
		return realPath(base)
	}
	var err error
	if base == "" {
		if base, err = DefaultDataDir(); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(filepath.Join(base, "PG_VERSION")); err == nil {
		return "", fmt.Errorf("%s is a Postgres data directory made by something else: give a directory of its own, or start that server and set DATABASE_URL", base)
	}
	if err := os.MkdirAll(filepath.Dir(base), 0o755); err != nil {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	if err := os.Mkdir(base, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	return realPath(base)
}

// realPath gives a directory the one name under which a running server is recognised, and the watchdog removes it.
func realPath(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("resolve the data directory: %w", err)
	}
	return dir, nil
}

// prepare leaves a cluster of the right version, with no server on it.
func (c *cluster) prepare(ctx context.Context, log *slog.Logger) error {
	if err := os.Rename(c.logPath(), c.logPath()+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("put the server's log aside: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(c.dir, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return c.create(ctx, log)
	}
	if err != nil {
		return fmt.Errorf("read the version of the data: %w", err)
	}
	if made := strings.TrimSpace(string(text)); made != strconv.Itoa(c.bin.major) {
		return fmt.Errorf("the data in %s were made by Postgres %s, but %s has version %s: use the programs of version %s, or move the data away",
			c.dir, made, c.bin.dir, c.bin.version, made)
	}
	if c.password, err = readPassword(c.passwordPath()); err != nil {
		return err
	}
	return c.settle(ctx, log)
}

// create initialises a cluster beside its place and moves it there at the end, so that a start cut off in the middle
// leaves nothing that looks finished.
func (c *cluster) create(ctx context.Context, log *slog.Logger) error {
	fresh := c.dir + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("remove an unfinished cluster: %w", err)
	}
	cached := c.cacheEntry()
	if cached == "" || c.fromCache(cached, fresh, log) != nil {
		if err := c.initdb(ctx, fresh); err != nil {
			return err
		}
		if cached != "" {
			c.intoCache(cached, fresh, log)
		}
	}
	if err := os.Rename(fresh, c.dir); err != nil {
		return fmt.Errorf("put the new cluster in place: %w", err)
	}
	return nil
}

func (c *cluster) initdb(ctx context.Context, dir string) error {
	password, err := readPassword(c.passwordPath())
	if errors.Is(err, fs.ErrNotExist) || err == nil && password == "" {
		password = rand.Text()
		err = os.WriteFile(c.passwordPath(), []byte(password+"\n"), 0o600)
	}
	if err == nil { // initdb reads the password as the other user
		err = errors.Join(c.account.own(c.passwordPath()), os.Mkdir(dir, 0o700))
	}
	if err == nil {
		err = c.account.own(dir)
	}
	if err != nil {
		return fmt.Errorf("prepare initdb: %w", err)
	}
	args := []string{"-D", dir, "-U", name, "-E", "UTF8", "--locale=C", "--auth=scram-sha-256", "--pwfile", c.passwordPath()}
	if c.cfg.NoSync {
		args = append(args, "--no-sync")
	}
	if c.cfg.CacheDir != "" {
		args = append(args, "--wal-segsize=1") // 15 MB less to copy
	}
	cmd := exec.CommandContext(ctx, c.bin.path("initdb"), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, environment(), c.account.attr()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // and the server it calls
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w: %s", cmd.Path, cmp.Or(ctx.Err(), err), strings.TrimSpace(said.String()))
	}
	c.password = password
	return nil
}

func readPassword(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the password kept beside the data: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// private are the settings that keep the server private and ours.
var private = []string{
	"listen_addresses", "port", "unix_socket_directories", "data_directory", "config_file", "hba_file", "ident_file",
	"external_pid_file", "logging_collector", "log_destination", "max_connections", "ssl",
}

func (cfg Config) check() error {
	if cfg.Port < 0 || cfg.Port > 65535 {
		return fmt.Errorf("port %d is not a port", cfg.Port)
	}
	if cfg.MaxConnections < 0 {
		return fmt.Errorf("max connections %d is negative", cfg.MaxConnections)
	}
	for name, value := range cfg.Settings {
		// Postgres takes -c a-b=c for a_b=c.
		plain := strings.ToLower(strings.ReplaceAll(name, "-", "_"))
		if slices.Contains(private, plain) {
			return fmt.Errorf("setting %s belongs to the private server and cannot be given", name)
		}
		if name == "" || strings.ContainsAny(name, "=\x00 ") || strings.ContainsRune(value, 0) {
			return fmt.Errorf("setting %q = %q is not a server setting", name, value)
		}
	}
	return nil
}

// settings are durable unless NoSync asks otherwise. Postgres takes the last of two equal names: the caller's.
func (c *cluster) settings() []string {
	set := []string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(c.port), "unix_socket_directories=",
		"max_connections=" + strconv.Itoa(cmp.Or(c.cfg.MaxConnections, 100)),
		"timezone=UTC", "log_timezone=UTC", "password_encryption=scram-sha-256", "synchronous_commit=on",
		"logging_collector=off", "log_destination=stderr", "ssl=off",
	}
	if c.cfg.NoSync {
		set = append(set, "fsync=off", "full_page_writes=off")
	} else {
		set = append(set, "fsync=on", "full_page_writes=on")
	}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Settings)) {
		set = append(set, name+"="+c.cfg.Settings[name])
	}
	args := make([]string, 0, 2*len(set))
	for _, setting := range set {
		args = append(args, "-c", setting)
	}
	return args
}

func (c *cluster) logPath() string      { return filepath.Join(c.base, "server.log") }
func (c *cluster) passwordPath() string { return filepath.Join(c.base, "password") }

// close gives the directory free, and removes a temporary one.
func (c *cluster) close() error {
	var err error
	if c.temporary {
		err = os.RemoveAll(c.base)
	}
	if c.lock != nil {
		err = errors.Join(err, c.lock.Close())
	}
	if err != nil {
		return fmt.Errorf("close the data directory: %w", err)
	}
	return nil
}
