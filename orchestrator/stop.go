package orchestrator

import (
	"context"
	"errors"

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
		j.fleet.Stop(nil)
	case <-ctx.Done():
	}
}

// stopBy drains the job for the reason its context ended.
func (j *job) stopBy(ctx context.Context) {
	if errors.Is(context.Cause(ctx), errMaxTime) {
		j.fleet.Drain(fault.LimitReached.New("stopped after %s", j.config.Resume.MaxTime).Set("max-time"), j.config.Resume.DrainTimeout)
		return
	}
	j.fleet.Drain(nil, j.config.Resume.DrainTimeout)
}

// byContext adds the end of ctx as the cause if ctx stopped the job.
func byContext(ctx context.Context, err error) error {
	if e := fault.As(err); e != nil && e.Kind == fault.Canceled && ctx.Err() != nil {
		return e.By(errors.Join(ctx.Err(), context.Cause(ctx)))
	}
	return err
}
