package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/owned"
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

// Open finds or creates the folder. It uses dir if it is not empty, else
// $GPURUN_LEASE_DIR, else the first of /run/gpurun and /tmp/gpurun-leases that exists.
// Only if neither exists, it creates the first it can: users who may write to /run and
// users who may not must share one folder.
//
// Every error is an *UnusableError: a job can run without leases.
func Open(dir string) (*Folder, error) {
	const access = unix.R_OK | unix.W_OK | unix.X_OK
	f, err := find(dir, access)
	if f != nil {
		return f, err
	}
	for _, path := range folders(dir) {
		f = &Folder{path: path}
		if err = makeFolder(path); err == nil {
			return f, f.check(access)
		}
	}
	return f, f.unusable("create it", err)
}

// OpenExisting is Open for readers: it creates no folder, and returns nil if there is
// none.
func OpenExisting(dir string) (*Folder, error) {
	f, err := find(dir, unix.R_OK|unix.X_OK)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// folders are the paths at which the folder may be.
func folders(dir string) []string {
	if dir = cmp.Or(dir, os.Getenv(Variable)); dir != "" {
		return []string{dir}
	}
	return []string{runFolder, tmpFolder}
}

// find returns the folder that exists, nil if there is none, and whether it can be used.
func find(dir string, access uint32) (*Folder, error) {
	for _, path := range folders(dir) {
		if _, err := os.Lstat(path); err == nil {
			f := &Folder{path: path}
			return f, f.check(access)
		}
	}
	return nil, nil
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
	case files.Owner(info) != 0 && !files.IsOwn(info):
		return f.unusable("check it", fmt.Errorf("it belongs to %s, who could remove the leases of other users; an administrator creates a folder for all users: mkdir -m 1777 %s", ownerName(info), runFolder))
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0:
		return f.unusable("check it", errors.New("any user may remove files from it: run chmod +t on it"))
	}
	if err := unix.Access(f.path, access); err != nil {
		return f.unusable("access it", fmt.Errorf("it belongs to %s, mode %o: %w", ownerName(info), info.Mode().Perm(), err))
	}
	return nil
}

// makeFolder creates a folder in which all users may create files and remove only
// their own: the mode of /tmp, regardless of the umask.
func makeFolder(path string) error {
	const mode = 0o777 | os.ModeSticky
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(path, mode)
	if errors.Is(err, os.ErrExist) {
		return nil // meanwhile
	}
	return cmp.Or(err, os.Chmod(path, mode))
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
	if files.Unwritable(err) {
		kind = fault.Storage
	}
	return fault.LeaseFolder.Of(kind, "%w", &UnusableError{f.path, fmt.Errorf("%s: %w", what, err)})
}

// ownerName is the name of a file's owner.
func ownerName(info os.FileInfo) string { return files.UserName(files.Owner(info)) }

// lockPause is the least time between two attempts to take the lock: a decision takes
// about a millisecond.
const lockPause = 5 * time.Millisecond

// lock takes the folder's lock and returns a function that releases it. The lock is on the
// folder itself: a file in it would belong to whoever created it, who could remove it while
// another process holds its lock.
func (f *Folder) lock(ctx context.Context) (unlock func(), err error) {
	dir, err := os.OpenFile(f.path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, f.unusable("open it", err)
	}
	for {
		switch err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			// Unlock explicitly: a child that is being started has the folder open too,
			// until it calls exec.
			return func() { _ = unix.Flock(int(dir.Fd()), unix.LOCK_UN); _ = dir.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			_ = dir.Close()
			return nil, f.unusable("lock it", err)
		}
		select {
		case <-time.After(lockPause + rand.N(lockPause)):
		case <-ctx.Done():
			_ = dir.Close()
			return nil, fault.GPUsHeld.Wrap(f.kept())
		}
	}
}

// locked calls decide, under the folder's lock, with all leases and with those that are left
// once the others are swept.
func (f *Folder) locked(ctx context.Context, decide func(all []found, living []Lease) error) error {
	unlock, err := f.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	now := time.Now()
	all, err := f.read(now)
	if err != nil {
		return err
	}
	f.sweep(all, now)
	return decide(all, inForce(all))
}

// keptError is why the folder's lock could not be taken: another process does not release
// it. That is no reason to run without leases, because that process may be taking one.
type keptError struct{ error }

func (f *Folder) kept() keptError {
	who := "another process"
	if pid := owned.Locker(f.path); pid > 0 {
		who = fmt.Sprintf("process %d", pid)
		if info, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			who += " of " + ownerName(info)
		}
	}
	return keptError{fmt.Errorf("%s does not release the lock of the lease folder %s, which normally takes milliseconds: it may be stopped; continue or kill it, or ask an administrator to", who, f.path)}
}
