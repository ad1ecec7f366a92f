package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

var errMaxTime = errors.New("--max-time reached")

// stopBy stops the job for the reason its context ended.
func (j *job) stopBy(ctx context.Context) {
	if errors.Is(context.Cause(ctx), errMaxTime) {
		j.halt(fault.New(fault.Stopped, "stopped after %s (--max-time)", j.config.MaxTime))
		return
	}
	j.stop()
}

// halt stops the job for an internal reason.
func (j *job) halt(why *fault.Error) {
	j.mu.Lock()
	if j.stopped == nil && (why.Kind == fault.Incompatible || !j.stopping.Load()) {
		j.stopped = why
	}
	j.mu.Unlock()
	if why.Kind == fault.Incompatible { // what is being computed is useless
		j.stopping.Store(true)
		j.abort()
		return
	}
	j.stop()
}

// stop asks every worker to end at its next batch boundary, or without the batches in
// flight if those take longer than Config.DrainTimeout.
func (j *job) stop() {
	if j.stopping.Swap(true) {
		return
	}
	j.emit(Stopping{Drain: j.config.DrainTimeout})
	j.queue.close()
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.slots {
		if w := j.slots[i].worker; w != nil {
			w.endJob(j.config.DrainTimeout)
		}
	}
	time.AfterFunc(j.config.DrainTimeout+drainGrace, j.killStuck)
}

// drainGrace is how much longer than a batch a worker may take before it is killed:
// time to kill a kernel and close a part.
const drainGrace = 10 * time.Second

// killStuck kills the workers of a stopping job that have not ended their chunks. Those
// chunks go back unchanged.
func (j *job) killStuck() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.slots {
		if w := j.slots[i].worker; w != nil && j.slots[i].size > 0 {
			w.abandon()
		}
	}
}

// byContext adds the end of ctx as the cause if ctx stopped the job.
func byContext(ctx context.Context, err error) error {
	if e := fault.As(err); e != nil && e.Kind == fault.Canceled && ctx.Err() != nil {
		return e.By(errors.Join(ctx.Err(), context.Cause(ctx)))
	}
	return err
}
