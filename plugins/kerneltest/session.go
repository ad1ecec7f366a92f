package kerneltest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// Starter gives a fresh kernel, which nobody has called. end frees what is behind
// it, however the kernel is by then.
type Starter func(ctx context.Context) (k plugins.Kernel, end func(), err error)

// Direct starts kernels as they are, without anything between.
func Direct(newKernel func() plugins.Kernel) Starter {
	return func(context.Context) (plugins.Kernel, func(), error) {
		return newKernel(), func() {}, nil
	}
}

// Loopback starts kernels behind the protocol by which a worker calls them, in
// this process.
func Loopback(newKernel func() plugins.Kernel) Starter {
	return func(context.Context) (plugins.Kernel, func(), error) {
		k, end := plugins.Loopback(newKernel())
		return k, end, nil
	}
}

// Binary starts a kernel program.
func Binary(command plugins.Command) Starter {
	return func(ctx context.Context) (plugins.Kernel, func(), error) {
		process, err := plugins.Start(ctx, command)
		if err != nil {
			return nil, nil, err
		}
		return process, process.Kill, nil
	}
}

// Outcome is what came of one check.
type Outcome struct {
	Check Check
	// Err is what is wrong and what to do about it; nil if nothing is.
	Err error
	// Skipped is why the check was not made; empty if it was.
	Skipped string
	Took    time.Duration
}

// String is a line for a person, and the error below it.
func (o Outcome) String() string {
	switch {
	case o.Err != nil:
		return fmt.Sprintf("FAIL  %s: %s\n%s", o.Check.Name, o.Check.About, o.Err)
	case o.Skipped != "":
		return fmt.Sprintf("skip  %s: %s", o.Check.Name, o.Skipped)
	}
	return fmt.Sprintf("ok    %s (%s)", o.Check.Name, o.Took.Round(time.Millisecond))
}

// Session runs checks against the kernels of one starter. It is for one goroutine
// at a time.
type Session struct {
	start   Starter
	options Options

	// The open kernel that checks share; nil before the first and after a failure.
	kernel plugins.Kernel
	end    func()
	// refused: no kernel can be opened, and nobody tries again.
	refused bool
}

// NewSession prepares a session, and starts nothing.
func NewSession(start Starter, o Options) *Session {
	return &Session{start: start, options: o.withDefaults()}
}

// Run runs one check. A check that does not return in time fails, and a panic of
// a kernel in this goroutine's reach is a failure too.
func (s *Session) Run(ctx context.Context, c Check) Outcome {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	err := s.run(ctx, c)
	outcome := Outcome{Check: c, Err: s.advise(err), Took: time.Since(begin)}
	var skip skipped
	if errors.As(err, &skip) {
		outcome.Err, outcome.Skipped = nil, string(skip)
	}
	return outcome
}

// advise puts a failure's advice into the words of the options.
func (s *Session) advise(err error) error {
	if f := (*failure)(nil); s.options.Advise != nil && errors.As(err, &f) {
		return &failure{what: f.what, todo: s.options.Advise(f.todo)}
	}
	return err
}

// run makes a check, but for one that a kernel which cannot be opened would fail like
// the check before it.
func (s *Session) run(ctx context.Context, c Check) error {
	if s.refused {
		return skipped("the kernel could not be opened before")
	}
	err := s.make(ctx, c)
	if f := (*failure)(nil); errors.As(err, &f) {
		s.refused = f.unusable
	}
	return err
}

func (s *Session) make(ctx context.Context, c Check) error {
	if !c.Opened {
		k, end, err := s.start(ctx)
		if err != nil {
			return startError(err)
		}
		defer end()
		return s.attempt(ctx, k, c.Run)
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	err := s.attempt(ctx, s.kernel, c.Run)
	var skip skipped
	if err != nil && !errors.As(err, &skip) {
		s.drop() // it may be broken; the next check gets a fresh one
	}
	return err
}

func startError(err error) error {
	return unusable("Run the program by hand to see whether it starts.", "the kernel did not start: %w", err)
}

// ready opens the kernel that checks share.
func (s *Session) ready(ctx context.Context) error {
	if s.kernel != nil {
		return nil
	}
	k, end, err := s.start(ctx)
	if err != nil {
		return startError(err)
	}
	if err := s.attempt(ctx, k, open); err != nil {
		end()
		return err
	}
	s.kernel, s.end = k, end
	return nil
}

// attempt calls f in a goroutine of its own, which is left behind if the kernel
// never returns.
func (s *Session) attempt(ctx context.Context, k plugins.Kernel, f func(context.Context, plugins.Kernel, Options) error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fail("Return an error instead; as a program, the kernel would be gone now.\n"+string(debug.Stack()), "the kernel panicked: %v", p)
			}
		}()
		done <- f(ctx, k, s.options)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done: // it minds the end of the context: its words are better
		if err != nil {
			return err
		}
	case <-time.After(100 * time.Millisecond):
	}
	return fail("Find what the kernel waits for; if it only needs longer, set Options.Timeout.",
		"the check was not through within %s: %w", s.options.Timeout, context.Cause(ctx))
}

func (s *Session) drop() {
	if s.end != nil {
		s.end()
	}
	s.kernel, s.end = nil, nil
}

// Close closes the kernel that checks shared, if there is one.
func (s *Session) Close() {
	if s.kernel == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.options.Timeout)
	defer cancel()
	_ = s.attempt(ctx, s.kernel, func(_ context.Context, k plugins.Kernel, _ Options) error { return k.Close() })
	s.drop()
}
