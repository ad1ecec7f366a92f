package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/owned"
)

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
// once the others are swept. The events that decide returns are noted after the lock is
// released: any user may hold up the writing of a history.
func (f *Folder) locked(ctx context.Context, decide func(all []found, living []Lease) ([]Event, error)) error {
	unlock, err := f.lock(ctx)
	if err != nil {
		return err
	}
	var living []Lease
	var events []Event
	defer func() { unlock(); f.note(events...) }()
	now := time.Now()
	all, err := f.read(now)
	if err != nil {
		return err
	}
	living, events = f.sweep(all, now)
	more, err := decide(all, living)
	events = append(events, more...)
	return err
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
