package plugins

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// Within runs a kernel in this process. It is for a kernel that gpurun trusts like its own code,
// and whose records take so little CPU time that a second process would double it. The contract is
// that of a process: Kill ends what the kernel computes, and a panic costs one record.
func Within(k Concurrent) *Process {
	ctx, cancel := context.WithCancel(context.Background())
	c, disconnect := loopback(k, nil, nil) // for all calls but those for records
	c.within = &within{kernel: k, ctx: ctx, cancel: cancel, crew: newCrew(ctx), disconnect: sync.OnceFunc(disconnect)}
	return newProcess(c, c.within)
}

// within makes the calls to a kernel in this process.
type within struct {
	kernel  Concurrent
	ctx     context.Context // done when the kernel was killed or closed
	cancel  context.CancelFunc
	crew    crew
	running sync.WaitGroup
	limit   time.Duration // by then, the kernel itself gives a record up; 0 if it does not

	disconnect func()
}

// ask is [client.Ask].
func (w *within) ask(record Record, limit time.Duration, onCPU bool, answered func(a Answer, expired bool)) {
	w.running.Add(1)
	w.crew.do(func() {
		defer w.running.Done()
		ctx, cancel := w.limited(limit)
		defer cancel()
		a := w.answer(ctx, record).checked(onCPU)
		a.Message, a.Detail = valid(a.Message), valid(a.Detail)
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
func (w *within) answer(ctx context.Context, record Record) (a Answer) {
	defer func() {
		if cause := recover(); cause != nil {
			a = FailedBy(fault.KernelException.New("the kernel panicked: %v", cause).WithDetail(string(debug.Stack())))
		}
	}()
	return w.kernel.Answer(ctx, record)
}

// crew makes calls in goroutines that are reused, because their stacks have grown.
type crew struct {
	idle chan func() // to goroutines without work
	end  <-chan struct{}
}

func newCrew(ctx context.Context) crew { return crew{make(chan func()), ctx.Done()} }

func (c crew) do(call func()) {
	select {
	case c.idle <- call:
	default:
		go c.work(call)
	}
}

// work makes a call, and then others until the end.
func (c crew) work(call func()) {
	for {
		call()
		select {
		case call = <-c.idle:
		case <-c.end:
			return
		}
	}
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
