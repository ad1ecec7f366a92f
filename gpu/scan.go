package gpu

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// scan queries everything from api, each GPU on its own thread, and gives up after the timeout.
// A GPU that does not answer for a while is unusable, if another one has answered.
//
// A thread that hangs in the driver is abandoned, since only the driver can end it. If all
// return, the library is shut down.
//
// It returns ErrNoLibrary and ErrNotBuilt unchanged and classifies other errors.
func scan(parent context.Context, api API, timeout time.Duration) (machine, error) {
	ctx, cancel := context.WithTimeout(parent, timeout)
	defer cancel()
	s := &scanner{api: api, counted: make(chan error, 1), ended: make(chan struct{})}
	go s.run(ctx)
	m, err := s.collect(ctx, patience(timeout))
	switch {
	case err == nil && m.complete():
		select { // wait for Shutdown
		case <-s.ended:
		case <-ctx.Done():
		}
		return m, nil
	case err == nil, errors.Is(err, ErrNoLibrary), errors.Is(err, ErrNotBuilt):
		return m, err
	case errors.Is(err, errGivenUp) && parent.Err() != nil:
		return machine{}, fault.Interrupted.New("look for GPUs: %w", context.Cause(parent))
	case errors.Is(err, errGivenUp):
		return machine{}, fault.Driver.New("the NVIDIA driver did not answer within %v (%s): it hangs; see dmesg and nvidia-smi", timeout, s.at.Load())
	default:
		return machine{}, fault.Driver.New("the NVIDIA driver does not work: %s: %w", s.at.Load(), err)
	}
}

// patience is how long one GPU may take: without persistence mode it takes a second or
// two.
func patience(timeout time.Duration) time.Duration { return timeout * 2 / 5 }

// errGivenUp means that the caller stopped waiting for the answer.
var errGivenUp = errors.New("given up")

// scanner is one pass over the machine.
type scanner struct {
	api     API
	at      atomic.Value // the current step, for the caller if run hangs
	driver  string
	count   int
	counted chan error     // receives once driver and count are known
	answers chan candidate // one per GPU
	ended   chan struct{}  // closed after Shutdown
}

// run is the first thread. It waits for the threads of the GPUs before it shuts the library down.
func (s *scanner) run(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s.at.Store("initialize NVML")
	if err := s.api.Init(); err != nil {
		s.counted <- err // no further call
		return
	}
	defer close(s.ended)
	// An error of Shutdown does not matter: everything has been queried.
	defer func() { _ = s.api.Shutdown() }()
	if ctx.Err() != nil {
		return
	}
	s.at.Store("query the driver version")
	s.driver, _ = s.api.DriverVersion()
	s.at.Store("count the GPUs")
	var err error
	s.count, err = s.api.Count()
	s.answers = make(chan candidate, s.count)
	if s.counted <- err; err != nil || ctx.Err() != nil {
		return
	}
	s.at.Store("query the GPUs")
	var threads sync.WaitGroup
	for i := range s.count {
		threads.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			s.answers <- s.describe(i)
		})
	}
	threads.Wait()
}

// collect waits for the answers. It waits for a hung GPU for patience, and while it waits
// for others; if none has answered, until ctx ends.
func (s *scanner) collect(ctx context.Context, patience time.Duration) (machine, error) {
	select {
	case err := <-s.counted:
		if err != nil {
			return machine{}, err
		}
	case <-ctx.Done():
		return machine{}, errGivenUp
	}
	m := machine{driver: s.driver, gpus: make([]candidate, s.count)}
	for i := range m.gpus {
		m.gpus[i] = candidate{Device: Device{Kind: GPU, Index: i, Name: unknownName}, unusable: errHangs}
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for answered := 0; answered < s.count; {
		select {
		case c := <-s.answers:
			m.gpus[c.Index] = c
			answered++
		case <-late.C:
			if answered > 0 {
				return m, nil
			}
			late.Reset(patience / 20) // the others of a slow driver follow the first
		case <-ctx.Done():
			if answered == 0 {
				return machine{}, errGivenUp
			}
			return m, nil
		}
	}
	return m, nil
}
