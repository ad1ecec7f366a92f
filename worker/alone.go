package worker

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// alone keeps the workers of a GPU apart that CUDA's multi-process service (MPS) serves. There, a
// fault of one process ends all of them, none is told whose fault it was, and MPS serves no new
// process before all have exited. Therefore
//
//   - one worker at a time tries records again that were lost in this way: a record that then fails
//     has failed by itself;
//   - no kernel opens meanwhile, since the next fault would end it;
//   - a worker that has nothing to compute, and so does not see the fault, ends its kernel.
//
// All of it goes through a file: its lock, exclusive for trying and shared for opening, and its
// time, which is that of the last fault.
type alone struct {
	path string   // empty without MPS
	file *os.File // locked exclusively; nil if it is not
}

// poll is how often to ask for the lock.
const poll = 20 * time.Millisecond

// lock waits for the lock. A file that cannot be opened locks nothing.
func (a *alone) lock(how int, rest func(time.Duration) error) (*os.File, error) {
	file, err := os.OpenFile(a.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil
	}
	for syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB) == syscall.EWOULDBLOCK {
		if err := rest(poll); err != nil {
			file.Close()
			return nil, err
		}
	}
	return file, nil
}

// begin notes a fault that may have come from another worker, and waits until no other worker
// tries records again. It does nothing if this worker may already do so.
func (h *kernelHost) begin(failure *fault.Error, rest func(time.Duration) error) (err error) {
	a := &h.alone
	if a.path == "" || failure == nil || failure.Sign != fault.Outside {
		return nil
	}
	h.kill() // as long as it exists, MPS serves no other
	now := time.Now()
	_ = os.Chtimes(a.path, now, now) // without a file, nobody has opened a kernel yet
	if a.file == nil {
		a.file, err = a.lock(syscall.LOCK_EX, rest)
	}
	return err
}

// end lets the other workers go on.
func (a *alone) end() {
	if a.file != nil {
		a.file.Close()
		a.file = nil
	}
}

// opening waits until a kernel may open, and returns what to call when it has.
func (a *alone) opening(ctx context.Context) (opened func(), err error) {
	if a.path == "" || a.file != nil {
		return func() {}, nil
	}
	file, err := a.lock(syscall.LOCK_SH, func(d time.Duration) error {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	return func() { file.Close() }, err
}

// leave ends an idle kernel that was opened before the last fault.
func (h *kernelHost) leave() {
	if h.alone.path == "" || h.process == nil {
		return
	}
	if info, err := os.Stat(h.alone.path); err == nil && info.ModTime().After(h.opened) {
		h.log.Info("the kernel ends, because another process on the GPU failed")
		h.kill()
	}
}
