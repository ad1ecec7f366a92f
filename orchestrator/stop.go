package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

var errMaxTime = errors.New("time limit reached")

// limitTime ends ctx after Config.Resume.MaxTime.
func (j *job) limitTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if j.config.Resume.MaxTime <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, j.config.Resume.MaxTime, errMaxTime)
}

// obeyAbort stops the job at once when Config.Abort is closed.
func (j *job) obeyAbort(ctx context.Context) {
	select {
	case <-j.config.Abort:
		j.stop(nil)
	case <-ctx.Done():
	}
}

// stopBy drains the job for the reason its context ended.
func (j *job) stopBy(ctx context.Context) {
	if errors.Is(context.Cause(ctx), errMaxTime) {
		j.drain(fault.New(fault.Stopped, "stopped after %s", j.config.Resume.MaxTime).Set("max-time"))
		return
	}
	j.drain(nil)
}

// drain asks every worker to end at its next batch boundary, or without the batches in
// flight if those take longer than Config.DrainTimeout. why is nil for a request.
func (j *job) drain(why *fault.Error) { j.drainFor(why, j.config.Resume.DrainTimeout) }

// drainFor is drain with another timeout.
func (j *job) drainFor(why *fault.Error, timeout time.Duration) {
	if !j.state.drain(why) {
		return
	}
	j.emit(Stopping{Drain: timeout})
	j.queue.close()
	for _, w := range j.fleet.workers() {
		w.endJob(timeout)
	}
	time.AfterFunc(timeout+drainGrace, func() { // chunks that have not ended go back unchanged
		for _, w := range j.fleet.computing() {
			w.abandon()
		}
	})
}

// stop ends the job at once and discards what is being computed. why is nil for a
// request.
func (j *job) stop(why *fault.Error) {
	j.state.stop(why)
	j.abort()
}

// drainGrace is how much longer than a batch a worker may take before it is killed:
// time to kill a kernel and close a part.
const drainGrace = 10 * time.Second

// byContext adds the end of ctx as the cause if ctx stopped the job.
func byContext(ctx context.Context, err error) error {
	if e := fault.As(err); e != nil && e.Kind == fault.Canceled && ctx.Err() != nil {
		return e.By(errors.Join(ctx.Err(), context.Cause(ctx)))
	}
	return err
}
