package process

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// Within runs a kernel in this process. It is for a kernel that gpurun trusts like its own code,
// and whose records take so little CPU time that a second process would double it. The contract is
// a process's: Kill ends what the kernel computes, and a panic costs one record.
func Within(k plugins.Concurrent) *Process {
	ctx, cancel := context.WithCancel(context.Background())
	c, disconnect := loopback(k, nil, nil) // for all calls but those for records
	c.within = &within{kernel: k, ctx: ctx, cancel: cancel, crew: protocol.NewCrew(ctx), disconnect: sync.OnceFunc(disconnect)}
	return newProcess(c, c.within)
}

// within makes the calls to a kernel in this process.
type within struct {
	kernel  plugins.Concurrent
	ctx     context.Context // done when the kernel was killed or closed
	cancel  context.CancelFunc
	crew    protocol.Crew
	running sync.WaitGroup
	limit   time.Duration // by then, the kernel itself gives a record up; 0 if it does not

	disconnect func()
}

// ask is [client.Ask].
func (w *within) ask(record plugins.Record, limit time.Duration, onCPU bool, answered func(a plugins.Answer, expired bool)) {
	w.running.Add(1)
	w.crew.Do(func() {
		defer w.running.Done()
		ctx, cancel := w.limited(limit)
		defer cancel()
		a := w.answer(ctx, record).Checked(onCPU)
		a.Message, a.Detail = strings.ToValidUTF8(a.Message, "\uFFFD"), strings.ToValidUTF8(a.Detail, "\uFFFD")
		answered(a, errors.Is(ctx.Err(), context.DeadlineExceeded))
	})
}

// limited returns the context of a call. A kernel that gives records up itself needs no time limit
// here: a second context would take about a tenth of the CPU time of a request.
func (w *within) limited(limit time.Duration) (context.Context, context.CancelFunc) {
	if w.limit > 0 && limit >= w.limit {
		return w.ctx, func() {}
	}
	return context.WithTimeout(w.ctx, limit)
}

// answer calls the kernel. A panic fails the record, and does not end this process.
func (w *within) answer(ctx context.Context, record plugins.Record) (a plugins.Answer) {
	defer func() {
		if cause := recover(); cause != nil {
			a = plugins.FailedBy(fault.KernelException.New("the kernel panicked: %v", cause).WithDetail(string(debug.Stack())))
		}
	}()
	return w.kernel.Answer(ctx, record)
}

// killWithin is how long calls may take to return after the kernel was killed.
const killWithin = 2 * time.Second

func (w *within) KillGroup() { w.cancel() }

func (w *within) Done() <-chan struct{} { return w.ctx.Done() }

func (w *within) Pid() int { return os.Getpid() }

func (w *within) end(k *client) error {
	defer w.Kill()
	return k.Close()
}

// Kill ends all calls and waits for them: afterwards, their records' memory may be gone.
func (w *within) Kill() {
	w.cancel()
	defer w.disconnect()
	ended := make(chan struct{})
	go func() {
		w.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(killWithin):
	}
}
