package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/owned"
)

// lockFile is locked while a request is decided.
const lockFile = "lock"

// lockPause is the least time between two attempts to take the lock: a decision takes
// about a millisecond.
const lockPause = 5 * time.Millisecond

// lock takes the folder's lock and returns a function that releases it.
//
// flock needs only an open file, so the file is opened for reading, and created only if
// it is missing: with fs.protected_regular the kernel refuses O_CREAT for another user's
// file in a folder like /tmp, even if it may be opened.
func (f *Folder) lock(ctx context.Context) (unlock func(), err error) {
	file, err := openOrMake(filepath.Join(f.path, lockFile))
	if err != nil {
		return nil, f.unusable("open its lock file", err)
	}
	for {
		switch err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			// Unlock explicitly: a child that is being started has the file open too,
			// until it calls exec.
			return func() { _ = unix.Flock(int(file.Fd()), unix.LOCK_UN); _ = file.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			_ = file.Close()
			return nil, f.unusable("lock it", err)
		}
		select {
		case <-time.After(lockPause + rand.N(lockPause)):
		case <-ctx.Done():
			_ = file.Close()
			return nil, f.kept()
		}
	}
}

// lockAndRead takes the folder's lock and returns all leases, and those that are not ended
// once the others are swept. The caller must unlock.
func (f *Folder) lockAndRead(ctx context.Context) (all []found, living []Lease, unlock func(), err error) {
	if unlock, err = f.lock(ctx); err != nil {
		return nil, nil, nil, err
	}
	now := time.Now()
	if all, err = f.read(now); err != nil {
		unlock()
		return nil, nil, nil, err
	}
	return all, f.sweep(all, now), unlock, nil
}

// kept is the error for a folder lock that another process does not release. That is
// no reason to run without leases: the other process may be taking one.
func (f *Folder) kept() error {
	who := "another process"
	if pid := owned.Locker(filepath.Join(f.path, lockFile)); pid > 0 {
		who = fmt.Sprintf("process %d", pid)
	}
	return fault.New(fault.NoDevice, "%s does not release the lock of the lease folder %s, which normally takes milliseconds: it may be stopped; continue or kill it", who, f.path)
}

func openOrMake(path string) (*os.File, error) {
	for {
		file, err := owned.Open(path, os.O_RDONLY, 0)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return file, err
		}
		file, err = owned.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			return file, file.Chmod(0o644) // regardless of the umask
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
}
