package worker

import (
	"os"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// alone keeps the workers apart that share a GPU through CUDA's multi-process service (MPS). There, a
// fault of one process ends all of them, none is told whose fault it was, and MPS serves no new
// process before all have exited. Therefore
//
//   - one worker at a time tries records again that were lost in this way: a record that then fails
//     has failed by itself;
//   - a worker that has nothing to compute, and so does not see the fault, ends its kernel.
//
// Both go through a file: workers lock it, and its modification time is when the last fault happened.
type alone struct {
	path string   // empty without MPS
	file *os.File // locked; nil if it is not
}

// poll is how often to ask for the lock.
const poll = 20 * time.Millisecond

// begin records a fault that may be another worker's, and waits until no other worker tries
// records again. It does nothing after other failures. A file that cannot be opened locks nothing.
func (h *kernelHost) begin(failure *fault.Error, rest func(time.Duration) error) error {
	a := &h.alone
	if a.path == "" || failure == nil || failure.Sign != fault.Outside {
		return nil
	}
	h.kill() // as long as it exists, MPS serves no other
	file, err := os.OpenFile(a.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(a.path, now, now)
	if a.file != nil {
		return file.Close()
	}
	for syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == syscall.EWOULDBLOCK {
		if err := rest(poll); err != nil {
			file.Close()
			return err
		}
	}
	a.file = file
	return nil
}

// end lets the other workers go on.
func (a *alone) end() {
	if a.file != nil {
		a.file.Close()
		a.file = nil
	}
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
