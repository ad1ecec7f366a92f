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

// Variable names the folder of leases; without it DefaultFolders are tried.
const Variable = "GPURUN_LEASE_DIR"

// The folders that a host shares, in this order. The second exists because an
// ordinary user cannot make the first.
const (
	runFolder = "/run/gpurun"
	tmpFolder = "/tmp/gpurun-leases"
)

// Folder is where a host's leases are.
type Folder struct {
	path string
}

// Path is the folder's.
func (f *Folder) Path() string { return f.path }

// Open finds or makes the folder. dir is used if it is not empty; else
// $GPURUN_LEASE_DIR; else the first of /run/gpurun and /tmp/gpurun-leases that is
// there, and only if neither is, the first that can be made: users who may write to
// /run and users who may not must meet in one place.
//
// Every error is an *UnusableError: a job can go on without leases.
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

// OpenExisting is Open for those who only look: it makes no folder, and returns nil
// if there is none.
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

// prepare makes the folder if it is missing (mode 0: it is there) and checks that
// leases can be kept in it.
func (f *Folder) prepare(mode os.FileMode) error {
	if mode != 0 {
		if err := makeFolder(f.path, mode); err != nil {
			return f.unusable("make it", err)
		}
	}
	return f.check(unix.R_OK | unix.W_OK | unix.X_OK)
}

// check refuses what is no folder, or one that cannot be used in this way.
func (f *Folder) check(access uint32) error {
	info, err := os.Lstat(f.path)
	switch {
	case err != nil:
		return f.unusable("look at it", err)
	case info.Mode()&os.ModeSymlink != 0:
		return f.unusable("use it", errors.New("it is a symbolic link, which somebody else may have placed"))
	case !info.IsDir():
		return f.unusable("use it", errors.New("it is no folder"))
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0:
		return f.unusable("use it", errors.New("everybody may remove anything from it: chmod +t it"))
	}
	if err := unix.Access(f.path, access); err != nil {
		return f.unusable("enter it", fmt.Errorf("it belongs to %s, mode %o: %w", ownerName(info), info.Mode().Perm(), err))
	}
	return nil
}

// makeFolder makes a folder that everybody may put files into, and in which each
// may remove only their own: the mode of /tmp, whatever the umask is.
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

// UnusableError says that there can be no leases here.
type UnusableError struct {
	Folder string
	err    error
}

// Error says which folder, what failed, and what to do.
func (u *UnusableError) Error() string {
	return fmt.Sprintf("the lease folder %s cannot be used: %v (%s names another)", u.Folder, u.err, Variable)
}

// Unwrap returns the cause.
func (u *UnusableError) Unwrap() error { return u.err }

// unusable is the error as a fault: a full disk stops differently from a folder
// that is the wrong one.
func (f *Folder) unusable(what string, err error) error {
	kind := fault.Usage
	for _, disk := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO} {
		if errors.Is(err, disk) {
			kind = fault.Storage
		}
	}
	return fault.Wrap(kind, &UnusableError{f.path, fmt.Errorf("%s: %w", what, err)})
}

func usage(format string, args ...any) error { return fault.New(fault.Usage, format, args...) }

// ownerName is the user that a file belongs to.
func ownerName(info os.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "somebody"
	}
	return userName(strconv.Itoa(int(stat.Uid)))
}

// userName is the name of a user id, or the id: in a container there may be none.
func userName(id string) string {
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "user " + id
}
