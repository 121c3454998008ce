package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// LockMachine waits until no other test process on this machine runs a cluster: two at once would be late together. For
// every test that starts real processes; closing it gives the machine free.
func LockMachine(ctx context.Context) (io.Closer, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("carillon-cluster-tests-%d.lock", os.Getuid()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the machine for cluster tests: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock the machine for cluster tests: %w", ctx.Err())
		}
	}
}
