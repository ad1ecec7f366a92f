package gpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// scan queries everything from api on one thread and gives up after the timeout. If a
// GPU does not answer for a while, each remaining GPU is queried on its own thread, so
// that it delays none of them. It is unusable if it still has not answered when they
// have.
//
// A thread that hangs in the driver is abandoned, since only the driver can end it. If it
// returns, it makes no further call but Shutdown.
//
// It returns ErrNoLibrary and ErrNotBuilt unchanged and classifies other errors.
func scan(parent context.Context, api API, timeout time.Duration) (machine, error) {
	ctx, cancel := context.WithTimeout(parent, timeout)
	defer cancel()
	s := &scanner{api: api, counted: make(chan error, 1), answers: make(chan candidate), ended: make(chan struct{})}
	s.threads.Add(2) // run and this goroutine, which may start others
	go s.run(ctx)
	m, err := s.collect(ctx, patience(timeout))
	s.threads.Done()
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
		return machine{}, fault.Driver.New("the NVIDIA driver did not answer within %v (%s): it hangs; see dmesg and nvidia-smi", timeout, s.step())
	default:
		return machine{}, fault.Driver.New("the NVIDIA driver does not work: %s: %w", s.step(), err)
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
	at      atomic.Pointer[string] // the current step, for the caller if run hangs
	driver  string
	count   int
	counted chan error     // receives once driver and count are known
	answers chan candidate // one per GPU
	next    atomic.Int64   // the GPU to query next
	asked   sync.Map       // when each was queried
	threads sync.WaitGroup
	ended   chan struct{} // closed after Shutdown
}

func (s *scanner) enter(step string) { s.at.Store(&step) }

func (s *scanner) step() string {
	if step := s.at.Load(); step != nil {
		return *step
	}
	return "start"
}

// run is the first thread. It waits for all others before it shuts the library down.
func (s *scanner) run(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s.enter("initialize NVML")
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
	s.enter("query the driver version")
	s.driver, _ = s.api.DriverVersion()
	s.enter("count the GPUs")
	var err error
	s.count, err = s.api.Count()
	s.counted <- err
	if err == nil {
		s.askNext(ctx)
	}
	s.threads.Done()
	s.threads.Wait()
}

// askNext queries the GPUs that no other thread has taken, one after the other, until
// none remains or ctx ends.
func (s *scanner) askNext(ctx context.Context) {
	for ctx.Err() == nil {
		i := int(s.next.Add(1)) - 1
		if i >= s.count {
			return
		}
		s.enter(fmt.Sprintf("query GPU %d", i))
		s.asked.Store(i, time.Now())
		select {
		case s.answers <- s.describe(i):
		case <-ctx.Done():
			return
		}
	}
}

// askRest queries each remaining GPU on its own thread.
func (s *scanner) askRest(ctx context.Context) {
	for range s.count - int(s.next.Load()) {
		s.threads.Add(1)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			defer s.threads.Done()
			s.askNext(ctx)
		}()
	}
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
	check := time.NewTicker(max(patience/20, time.Millisecond))
	defer check.Stop()
	wide := false // each GPU has its own thread
	for answered := 0; answered < s.count; {
		select {
		case c := <-s.answers:
			m.gpus[c.Index] = c
			answered++
		case <-check.C:
			stuck, all := s.stuck(m, patience)
			if stuck && !wide {
				wide = true
				s.askRest(ctx)
			}
			if all && answered > 0 {
				return m, nil
			}
		case <-ctx.Done():
			if answered == 0 {
				return machine{}, errGivenUp
			}
			return m, nil
		}
	}
	return m, nil
}

// stuck reports whether some, and whether all, of the GPUs that have not answered were
// queried longer than patience ago.
func (s *scanner) stuck(m machine, patience time.Duration) (some, all bool) {
	all = true
	for i, g := range m.gpus {
		if !errors.Is(g.unusable, errHangs) {
			continue
		}
		asked, _ := s.asked.Load(i)
		began, was := asked.(time.Time)
		late := was && time.Since(began) > patience
		some, all = some || late, all && late
	}
	return some, all
}

// complete reports whether every GPU has answered.
func (m machine) complete() bool {
	return !slices.ContainsFunc(m.gpus, func(g candidate) bool { return errors.Is(g.unusable, errHangs) })
}
