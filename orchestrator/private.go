package orchestrator

import (
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/gpurun/gpurun/internal/fault"
)

// A job folder holds data that only its owner may read, above all a kernel's
// configuration, and paths that gpurun removes. It must therefore belong to the user,
// and no other user may be able to write to it.

// makePrivate refuses a folder that another user created, or that another user's link
// leads to, and removes access for others.
func makePrivate(path string) error {
	link, err := os.Lstat(path)
	if err != nil {
		return fault.New(kindOfDisk(err), "make job folder: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fault.New(kindOfDisk(err), "make job folder: %w", err)
	}
	if !isOwn(link) && link.Mode()&os.ModeSymlink != 0 || !isOwn(info) && !givesFilesTo(path, uidOf(info)) {
		return fault.New(fault.Conflict, "the job folder %s belongs to %s, not to you; remove it, or name another output",
			path, userName(uidOf(link)))
	}
	if info.Mode().Perm()&0o077 != 0 {
		_ = os.Chmod(path, 0o700) // not every file system has modes
	}
	return nil
}

// isOwn reports whether a file belongs to this process's user.
func isOwn(info os.FileInfo) bool { return uidOf(info) == os.Geteuid() }

func uidOf(info os.FileInfo) int {
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
	return err == nil && uidOf(info) == uid
}

func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "user " + id
}
