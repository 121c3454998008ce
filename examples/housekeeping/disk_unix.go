//go:build linux || darwin

package housekeeping

import "syscall"

// diskOf asks the file system for its size and for what an ordinary user may still write.
func diskOf(dir string) (disk, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return disk{}, err
	}
	block := int64(st.Bsize)
	return disk{total: int64(st.Blocks) * block, free: int64(st.Bavail) * block}, nil
}
