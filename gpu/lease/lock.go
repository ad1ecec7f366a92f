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

// lockFile is held while somebody decides.
const lockFile = "lock"

// lockPause is how long one waits before asking for the lock again: a decision
// takes a millisecond.
const lockPause = 5 * time.Millisecond

// lock takes the folder's lock, and returns how it is given back.
//
// flock needs no more than an open file, so everybody opens it for reading; only
// who finds none makes one. With fs.protected_regular the kernel refuses O_CREAT
// for another user's file in a folder like /tmp, even one that may be opened.
func (f *Folder) lock(ctx context.Context) (unlock func(), err error) {
	file, err := openOrMake(filepath.Join(f.path, lockFile))
	if err != nil {
		return nil, f.unusable("open its lock", err)
	}
	for {
		switch err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			// Not by closing it alone: a child that is just being started has it
			// open too, until it is.
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

// kept says that another process does not let go of the folder's lock. That is no
// reason to go without leases: it may well be taking one.
func (f *Folder) kept() error {
	who := "another process"
	if pid := owned.Locker(filepath.Join(f.path, lockFile)); pid > 0 {
		who = fmt.Sprintf("process %d", pid)
	}
	return fault.New(fault.NoDevice, "%s keeps the lock of the lease folder %s, which is held for a moment as a rule: it may be stopped; continue or end it", who, f.path)
}

func openOrMake(path string) (*os.File, error) {
	for {
		file, err := owned.Open(path, os.O_RDONLY, 0)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return file, err
		}
		file, err = owned.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			return file, file.Chmod(0o644) // whatever the umask is
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
}
