package kerneltest

import (
	"context"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/process"
)

// Starter returns a fresh kernel on which no method has been called. end frees its
// resources, whatever state the kernel is in.
type Starter func(ctx context.Context) (k plugins.Kernel, end func(), err error)

// Direct returns a Starter whose kernels are called directly.
func Direct(newKernel func() plugins.Kernel) Starter {
	return func(context.Context) (plugins.Kernel, func(), error) {
		return newKernel(), func() {}, nil
	}
}

// Loopback returns a Starter whose kernels are called through the worker's protocol,
// within this process.
func Loopback(newKernel func() plugins.Kernel) Starter {
	return func(context.Context) (plugins.Kernel, func(), error) {
		k, end := process.Loopback(newKernel())
		return k, end, nil
	}
}

// Binary returns a Starter that runs a kernel program.
func Binary(command process.Command) Starter {
	return func(ctx context.Context) (plugins.Kernel, func(), error) {
		process, err := process.Start(ctx, command)
		if err != nil {
			return nil, nil, err
		}
		return process, process.Kill, nil
	}
}

// Outcome is the result of one check.
type Outcome struct {
	Check Check
	// Err is a [*Failure], which reports what is wrong and how to fix it; nil if the check passed or was
	// skipped.
	Err error
	// Skipped is why the check did not run; empty if it ran.
	Skipped string
	Took    time.Duration
}

// String formats the outcome as one line, followed by the error if there is one.
func (o Outcome) String() string {
	switch {
	case o.Err != nil:
		return fmt.Sprintf("FAIL  %s: %s\n%s", o.Check.Name, o.Check.About, o.Err)
	case o.Skipped != "":
		return fmt.Sprintf("skip  %s: %s", o.Check.Name, o.Skipped)
	}
	return fmt.Sprintf("ok    %s (%s)", o.Check.Name, o.Took.Round(time.Millisecond))
}

// Session runs checks on the kernels of one starter. It is not safe for concurrent use.
type Session struct {
	start   Starter
	options Options

	// The open kernel that checks share; nil before the first check and after a failure.
	kernel plugins.Kernel
	end    func()
	// refused means that a kernel could not be opened, so the remaining checks are skipped.
	refused bool
}

// NewSession returns a session without starting a kernel.
func NewSession(start Starter, o Options) *Session {
	return &Session{start: start, options: o.withDefaults()}
}

// Run runs one check, or skips it if the kernel is known to be unusable: it would fail with
// the same error again. The check fails if it exceeds the timeout, or if the kernel panics in a
// goroutine that Run can recover.
func (s *Session) Run(ctx context.Context, c Check) Outcome {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	outcome := Outcome{Check: c}
	switch err := s.check(ctx, c).(type) {
	case skipped:
		outcome.Skipped = string(err)
	case *Failure:
		outcome.Err, s.refused = err, err.unusable
	}
	outcome.Took = time.Since(begin)
	return outcome
}

func (s *Session) check(ctx context.Context, c Check) error {
	if s.refused {
		return skipped("the kernel could not be started or opened")
	}
	if s.kernel == nil || !c.Opened {
		k, end, err := s.start(ctx)
		if err != nil {
			f := newFailure(StartByHand, "the kernel did not start: %w", err)
			f.unusable = true
			return f
		}
		if !c.Opened {
			defer end()
			return s.run(ctx, k, c.run)
		}
		if err := s.run(ctx, k, trial.open); err != nil {
			end()
			return err
		}
		s.kernel, s.end = k, end
	}
	err := s.run(ctx, s.kernel, c.run)
	if _, failed := err.(*Failure); failed {
		s.drop() // the kernel may be broken: the next check gets a fresh one
	}
	return err
}

func (s *Session) run(ctx context.Context, k plugins.Kernel, check func(trial)) error {
	return trial{Options: s.options, ctx: ctx, kernel: k}.run(check)
}

func (s *Session) drop() {
	s.end()
	s.kernel, s.end = nil, nil
}

// Close closes the kernel that the checks share, if one is open.
func (s *Session) Close() {
	if s.kernel == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.options.Timeout)
	defer cancel()
	_ = s.run(ctx, s.kernel, func(t trial) { _ = t.kernel.Close() })
	s.drop()
}
