package devtest

import "syscall"

// free is the number of bytes that a file system has left for us; 0 when that cannot be known.
func free(path string) uint64 {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return 0
	}
	return fs.Bavail * uint64(fs.Bsize)
}
