package devdb

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that Postgres runs as when we are root, which it refuses to be. Nil means: as ourselves. It is
// given the cluster directory and the password file, nothing else.
type account struct {
	name     string
	uid, gid uint32
}

// serverAccount picks the user: ourselves unless we are root, then the one who owns the existing data, else `postgres`,
// else `nobody`.
func serverAccount(dir string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	if fi, err := os.Stat(dir); err == nil {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return &account{name: "uid " + strconv.Itoa(int(st.Uid)), uid: st.Uid, gid: st.Gid}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr != nil || gidErr != nil || uid == 0 {
			continue
		}
		return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("postgres refuses to run as root, and there is no user postgres or nobody to run it as: start carillon as another user, or set DATABASE_URL")
}

// attr makes a process a session of its own, so that a Ctrl-C meant for us does not stop the database before we do, and
// drops root.
func (a *account) attr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// own hands a file or directory over.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// reach checks that the account may enter every directory down to path, because Postgres itself would only say
// "permission denied". Access control lists are not looked at.
func (a *account) reach(path string) error {
	if a == nil {
		return nil
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		fi, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if !a.mayEnter(fi) {
			return fmt.Errorf("postgres runs as %s, because it refuses to be root, and %s may not enter %s: choose another place, such as %s, or chmod o+x it",
				a.name, a.name, dir, rootDataDir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (a *account) mayEnter(fi os.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return true
	case st.Uid == a.uid:
		return fi.Mode()&0o100 != 0
	case st.Gid == a.gid:
		return fi.Mode()&0o010 != 0
	}
	return fi.Mode()&0o001 != 0
}
