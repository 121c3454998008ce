package devdb

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// cacheEntry is where an initialised cluster of this version is kept, with the password it was made with. A copy of
// its 24 MB took 0.1-0.5 s where initdb took 1.3 s (two cores, busy disk). The "v1" stands for how initdb is called; raise
// it with that.
func (c *cluster) cacheEntry() string {
	if c.cfg.CacheDir == "" {
		return ""
	}
	return filepath.Join(c.cfg.CacheDir, "initdb-v1-"+c.bin.version)
}

// fromCache copies the kept cluster to dir. On any error dir is gone again and initdb does the work.
func (c *cluster) fromCache(entry, dir string, log *slog.Logger) error {
	password, err := readPassword(filepath.Join(entry, "password"))
	if err != nil {
		return err // most often: nothing is kept yet
	}
	err = os.WriteFile(c.passwordPath(), []byte(password+"\n"), 0o600)
	if err == nil {
		err = c.copyCluster(filepath.Join(entry, "cluster"), dir)
	}
	if err != nil {
		log.Warn("kept postgres cluster not usable", "dir", entry, "error", err)
		_ = os.RemoveAll(dir)
		return err
	}
	c.password = password
	return nil
}

// intoCache keeps a copy of a new cluster. It appears under its name complete or not at all; of two processes that race
// to it, one wins. A cache that cannot be written costs time only.
func (c *cluster) intoCache(entry, dir string, log *slog.Logger) {
	err := os.MkdirAll(c.cfg.CacheDir, 0o700)
	if err == nil {
		err = keep(entry, dir, c.password)
	}
	if err != nil {
		log.Debug("postgres cluster not kept", "dir", entry, "error", err)
	}
}

func keep(entry, dir, password string) error {
	unfinished, err := os.MkdirTemp(filepath.Dir(entry), "unfinished-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unfinished)
	if err := os.CopyFS(filepath.Join(unfinished, "cluster"), os.DirFS(dir)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(unfinished, "password"), []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(unfinished, entry)
}

// copyCluster copies a cluster and hands the copy to the server's account. Postgres insists on the mode of the top only.
func (c *cluster) copyCluster(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("copy a cluster: %w", err)
	}
	if err := os.Chmod(to, 0o700); err != nil {
		return err
	}
	if c.account == nil {
		return nil
	}
	return filepath.WalkDir(to, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return c.account.own(path)
	})
}
