package devdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// oldest is the first major version whose SQL Carillon uses.
const oldest = 15

// ErrNoPostgres is wrapped by the error of FindBinaries, and so of Start, when no usable server programs were found.
var ErrNoPostgres = errors.New("no Postgres found")

// installs are the places where packages put server programs outside PATH; the newest version of each is tried.
var installs = []string{
	"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                   // RPMs of the Postgres project
	"/opt/homebrew/opt/postgresql@*/bin", // Homebrew on arm64
	"/usr/local/opt/postgresql@*/bin",    // Homebrew on amd64
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// binaries are the server programs of one installation.
type binaries struct {
	dir     string
	version string // such as 15.18
	major   int
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// FindBinaries returns the directory with initdb and postgres of version 15 or newer: binDir when given; else that of
// pg_config, of PATH, the newest of the usual packages, or one unpacked earlier in the user's cache directory. looked
// lists the places tried, with the reason why each did not do. The error wraps ErrNoPostgres and says how to mend it.
func FindBinaries(binDir string) (dir string, looked []string, err error) {
	b, looked, err := findBinaries(context.Background(), binDir)
	return b.dir, looked, err
}

func findBinaries(ctx context.Context, binDir string) (found binaries, looked []string, err error) {
	dirs := []string{binDir}
	if binDir == "" {
		dirs = candidates(ctx)
	}
	for _, dir := range dirs {
		b, err := inspect(ctx, dir)
		if err == nil {
			return b, append(looked, dir), nil
		}
		if ctx.Err() != nil {
			return binaries{}, looked, fmt.Errorf("look for Postgres: %w", ctx.Err())
		}
		looked = append(looked, fmt.Sprintf("%s (%v)", dir, err))
	}
	if binDir != "" {
		return binaries{}, looked, fmt.Errorf("%w: no server programs of version %d or newer in %s", ErrNoPostgres, oldest, looked[0])
	}
	where := "pg_config, PATH, " + strings.Join(installs, ", ")
	if len(looked) > 0 {
		where = strings.Join(looked, "; ") + "; " + where
	}
	return binaries{}, looked, fmt.Errorf("%w: set DATABASE_URL, or install Postgres %d or newer"+
		" (Debian: apt-get install postgresql; macOS: brew install postgresql@17), or name its bin directory; looked in %s",
		ErrNoPostgres, oldest, where)
}

// candidates lists directories in the order of preference; none is checked yet.
func candidates(ctx context.Context) []string {
	var dirs []string
	if out, err := output(ctx, "pg_config", "--bindir"); err == nil {
		dirs = append(dirs, out)
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	patterns := installs
	if cache, err := os.UserCacheDir(); err == nil {
		patterns = append(slices.Clip(patterns), filepath.Join(cache, "carillon", "postgres", "*", "bin"))
	}
	for _, pattern := range patterns {
		matches, _ := filepath.Glob(pattern) // the only error is a bad pattern
		slices.SortFunc(matches, func(a, b string) int { return cmp.Compare(pathMajor(b), pathMajor(a)) })
		dirs = append(dirs, matches...)
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		twice := seen[dir]
		seen[dir] = true
		return twice
	})
}

var (
	digits        = regexp.MustCompile(`\d+`)
	versionFormat = regexp.MustCompile(`^postgres \(PostgreSQL\) ((\d+)\S*)`)
)

// pathMajor reads the version out of a path such as /usr/lib/postgresql/15/bin, only to order the candidates.
func pathMajor(dir string) int {
	n, _ := strconv.Atoi(digits.FindString(filepath.Base(filepath.Dir(dir))))
	return n
}

// inspect resolves links, because Postgres finds its share directory relative to the real path.
func inspect(ctx context.Context, dir string) (binaries, error) {
	real, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return binaries{}, errors.New("no postgres in it")
	}
	if real, err = filepath.Abs(real); err != nil {
		return binaries{}, err
	}
	b := binaries{dir: filepath.Dir(real)}
	if _, err := os.Stat(b.path("initdb")); err != nil {
		return binaries{}, errors.New("no initdb in it")
	}
	said, err := output(ctx, real, "--version")
	if err != nil {
		return binaries{}, fmt.Errorf("ask its version: %w", err)
	}
	m := versionFormat.FindStringSubmatch(said)
	if m == nil {
		return binaries{}, fmt.Errorf("its version is unknown: %q", said)
	}
	b.version = m[1]
	b.major, _ = strconv.Atoi(m[2])
	if b.major < oldest {
		return binaries{}, fmt.Errorf("its version %s is too old", b.version)
	}
	return b, nil
}

func output(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).Output()
	return strings.TrimSpace(string(out)), err
}
