package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/process"
)

// layoutWait is how long the results of other workers wait for the first ones of the input.
const layoutWait = 10 * time.Second

// layoutLeader lets the task with the first records decide the layout of a job with columns,
// so that it does not depend on which worker is faster: the results of others wait for it,
// until it has ended or takes too long.
type layoutLeader struct {
	decide func(columns.Layout) (columns.Layout, *fault.Error)
	known  <-chan struct{} // closed once it is decided; nil for a job without columns

	mu    sync.Mutex
	begun bool
	first int64         // record of the task
	over  chan struct{} // closed when the task has ended
}

func newLayoutLeader(o Options) *layoutLeader {
	return &layoutLeader{decide: o.Layout, known: o.LayoutKnown, over: make(chan struct{})}
}

// begin notes a task that begins with a record. The caller must call ended when it ends.
func (l *layoutLeader) begin(first int64) (ended func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun || first < l.first && !l.isOver() {
		l.begun, l.first = true, first
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.first == first && !l.isOver() {
			close(l.over)
		}
	}
}

func (l *layoutLeader) isOver() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// await returns when a task that begins with a record may decide the layout, or when that is
// known.
func (l *layoutLeader) await(ctx context.Context, first int64) {
	l.mu.Lock()
	leads := l.first == first
	l.mu.Unlock()
	if leads {
		return
	}
	timer := time.NewTimer(layoutWait)
	defer timer.Stop()
	select {
	case <-l.known:
	case <-l.over:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// answer answers a worker's proposal. Its task begins with record first.
func (l *layoutLeader) answer(ctx context.Context, w *process.Worker, first int64, proposal columns.Layout) *fault.Error {
	if l.known == nil {
		return fault.Bug.Of(fault.Worker, "bug: a worker proposed a layout for a job without columns")
	}
	l.await(ctx, first)
	fixed, err := l.decide(proposal)
	if err != nil {
		return err
	}
	w.Send(wire.Message{Layout: &fixed}) // if it fails, the worker has exited
	return nil
}
