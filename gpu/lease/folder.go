package lease

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
)

// Variable is the environment variable that names the lease folder; see Open for the
// defaults.
const Variable = "GPURUN_LEASE_DIR"

// The default folders, in order. The second exists because an ordinary user cannot
// create the first.
const (
	runFolder = "/run/gpurun"
	tmpFolder = "/tmp/gpurun-leases"
)

// Folder is the folder that holds a host's leases.
type Folder struct {
	path string
}

// Path returns the folder's path.
func (f *Folder) Path() string { return f.path }

// Open finds or creates the folder. It uses dir if it is not empty, else
// $GPURUN_LEASE_DIR, else the first of /run/gpurun and /tmp/gpurun-leases that exists.
// Only if neither exists, it creates the first it can: users who may write to /run and
// users who may not must share one folder.
//
// Every error is an *UnusableError: a job can run without leases.
func Open(dir string) (*Folder, error) {
	if dir == "" {
		dir = os.Getenv(Variable)
	}
	if dir != "" {
		f := &Folder{path: dir}
		return f, f.prepare(0o777 | os.ModeSticky)
	}
	for _, path := range []string{runFolder, tmpFolder} {
		if _, err := os.Lstat(path); err == nil {
			f := &Folder{path: path}
			return f, f.prepare(0)
		}
	}
	f := &Folder{path: runFolder}
	if f.prepare(0o777|os.ModeSticky) == nil {
		return f, nil
	}
	f = &Folder{path: tmpFolder}
	return f, f.prepare(0o777 | os.ModeSticky)
}

// OpenExisting is Open for readers: it creates no folder, and returns nil if there is
// none.
func OpenExisting(dir string) (*Folder, error) {
	if dir == "" {
		dir = os.Getenv(Variable)
	}
	paths := []string{runFolder, tmpFolder}
	if dir != "" {
		paths = []string{dir}
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			f := &Folder{path: path}
			if err := f.check(unix.R_OK | unix.X_OK); err != nil {
				return nil, err
			}
			return f, nil
		}
	}
	return nil, nil
}

// prepare creates the folder if it is missing (mode 0: it exists) and checks that
// leases can be kept in it.
func (f *Folder) prepare(mode os.FileMode) error {
	if mode != 0 {
		if err := makeFolder(f.path, mode); err != nil {
			return f.unusable("create it", err)
		}
	}
	return f.check(unix.R_OK | unix.W_OK | unix.X_OK)
}

// check rejects what is not a folder, a folder of another user, who may remove every file in
// it, and a folder without this access.
func (f *Folder) check(access uint32) error {
	info, err := os.Lstat(f.path)
	switch {
	case err != nil:
		return f.unusable("check it", err)
	case info.Mode()&os.ModeSymlink != 0:
		return f.unusable("check it", errors.New("it is a symbolic link, which another user may have created"))
	case !info.IsDir():
		return f.unusable("check it", errors.New("it is not a folder"))
	case !trusted(info):
		return f.unusable("check it", fmt.Errorf("it belongs to %s, who could remove the leases of other users; an administrator creates a folder for all users: mkdir -m 1777 %s", ownerName(info), runFolder))
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0:
		return f.unusable("check it", errors.New("any user may remove files from it: run chmod +t on it"))
	}
	if err := unix.Access(f.path, access); err != nil {
		return f.unusable("access it", fmt.Errorf("it belongs to %s, mode %o: %w", ownerName(info), info.Mode().Perm(), err))
	}
	return nil
}

// trusted reports whether a folder belongs to root or to this user.
func trusted(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || stat.Uid == 0 || int(stat.Uid) == os.Geteuid()
}

// makeFolder creates a folder in which all users may create files and remove only
// their own: the mode of /tmp, regardless of the umask.
func makeFolder(path string, mode os.FileMode) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = os.Mkdir(path, mode)
		}
	}
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// UnusableError means that leases cannot be used.
type UnusableError struct {
	Folder string
	err    error
}

// Error names the folder, what failed and what to do.
func (u *UnusableError) Error() string {
	return fmt.Sprintf("the lease folder %s cannot be used: %v (set %s to use another)", u.Folder, u.err, Variable)
}

// Unwrap returns the cause.
func (u *UnusableError) Unwrap() error { return u.err }

// unusable classifies the error: a full disk is handled differently from a wrong
// folder.
func (f *Folder) unusable(what string, err error) error {
	kind := fault.Usage
	for _, disk := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO} {
		if errors.Is(err, disk) {
			kind = fault.Storage
		}
	}
	return fault.LeaseFolder.Of(kind, "%w", &UnusableError{f.path, fmt.Errorf("%s: %w", what, err)})
}

// ownerName is the name of a file's owner.
func ownerName(info os.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "an unknown user"
	}
	return userName(strconv.Itoa(int(stat.Uid)))
}

// userName is the name of a user ID, or the ID itself: a container may not know the
// name.
func userName(id string) string {
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "user " + id
}
