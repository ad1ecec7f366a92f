package files

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// Folders of a job hold data that only its owner may read, above all command lines and a
// kernel's configuration, and paths that gpurun writes and removes. They must therefore
// belong to the user, and no other user may be able to write to them.

// PrivateDirMode is the mode of such a folder.
const PrivateDirMode os.FileMode = 0o700

// NotOwnError means that a folder belongs to another user.
type NotOwnError struct{ Path, Owner string }

// Error names the folder and its owner.
func (e *NotOwnError) Error() string {
	return fmt.Sprintf("%s belongs to %s, not to you", e.Path, e.Owner)
}

// MakePrivate refuses a folder that another user created, or that another user's link leads
// to, with a *NotOwnError, and removes access for others.
func MakePrivate(path string) error {
	link, err := os.Lstat(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !IsOwn(link) && link.Mode()&os.ModeSymlink != 0 || !IsOwn(info) && !givesFilesTo(path, Owner(info)) {
		return &NotOwnError{path, UserName(Owner(link))}
	}
	if info.Mode().Perm()&0o077 != 0 {
		_ = os.Chmod(path, PrivateDirMode) // not every file system has modes
	}
	return nil
}

// IsOwn reports whether a file belongs to this process's user.
func IsOwn(info os.FileInfo) bool { return Owner(info) == os.Geteuid() }

// Owner returns the ID of the user that a file belongs to; this process's user if the system does not tell.
func Owner(info os.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return os.Geteuid()
}

// givesFilesTo reports whether files that we create in a folder belong to this user:
// some network file systems map owners.
func givesFilesTo(dir string, uid int) bool {
	file, err := os.CreateTemp(dir, "owner-")
	if err != nil {
		return false
	}
	defer os.Remove(file.Name())
	defer file.Close()
	info, err := file.Stat()
	return err == nil && Owner(info) == uid
}

// UserName is the name of a user, or the ID: a container may not know the name.
func UserName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "user " + id
}
