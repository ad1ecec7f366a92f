package kerneltest

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// trial is one check of one kernel. Like a test, a check ends at the first failure: the
// methods that report one do not return.
type trial struct {
	Options
	ctx    context.Context
	kernel plugins.Kernel
	err    *error // set to a *Failure or skipped
}

// skipped is why a check does not apply to the kernel.
type skipped string

func (s skipped) Error() string { return "skipped: " + string(s) }

func (t trial) stop(err error) {
	*t.err = err
	runtime.Goexit()
}

func (t trial) skip(why string) { t.stop(skipped(why)) }

func (t trial) fail(advice Advice, format string, args ...any) {
	t.stop(newFailure(advice, format, args...))
}

// refuse is fail for a kernel that cannot be started, described or opened.
func (t trial) refuse(advice Advice, format string, args ...any) {
	f := newFailure(advice, format, args...)
	f.unusable = true
	t.stop(f)
}

// run runs a check in a goroutine, which it abandons if the kernel never returns.
func (t trial) run(check func(trial)) error {
	done := make(chan error, 1)
	t.err = new(error)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				f := newFailure(ReturnNotPanic, "the kernel panicked: %v", p)
				f.Detail = string(debug.Stack())
				*t.err = f
			}
			done <- *t.err
		}()
		check(t)
	}()
	select {
	case err := <-done:
		return err
	case <-t.ctx.Done():
	}
	select {
	case err := <-done: // the check respects the context, and its error says more
		if err != nil {
			return err
		}
	case <-time.After(100 * time.Millisecond):
	}
	return newFailure(MoreTime, "the check did not finish within %s: %w", t.Timeout, context.Cause(t.ctx))
}
