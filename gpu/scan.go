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

// scan asks api for everything, on one thread, and gives up after the timeout. When a
// GPU does not answer for a while, the remaining ones are asked on threads of their
// own, so that it costs none of them; it is gone if it still has not answered when
// they have.
//
// A thread that hangs in the driver is left behind: nothing can end it but the
// driver. Should it come back, it makes no further call but Shutdown.
//
// Errors: ErrNoLibrary and ErrNotBuilt as they are, else classified.
func scan(parent context.Context, api API, timeout time.Duration) (machine, error) {
	ctx, cancel := context.WithTimeout(parent, timeout)
	defer cancel()
	s := &scanner{api: api, counted: make(chan error, 1), answers: make(chan candidate), ended: make(chan struct{})}
	s.threads.Add(2) // run, and this one, which may start others
	go s.run(ctx)
	m, err := s.collect(ctx, patience(timeout))
	s.threads.Done()
	switch {
	case err == nil && m.complete():
		select { // the library is left as it was found
		case <-s.ended:
		case <-ctx.Done():
		}
		return m, nil
	case err == nil, errors.Is(err, ErrNoLibrary), errors.Is(err, ErrNotBuilt):
		return m, err
	case errors.Is(err, errGivenUp) && parent.Err() != nil:
		return machine{}, fault.New(fault.Canceled, "look for GPUs: %w", context.Cause(parent))
	case errors.Is(err, errGivenUp):
		return machine{}, fault.New(fault.NoDevice,
			"the NVIDIA driver did not answer within %v (%s): it hangs; see dmesg and nvidia-smi; %s", timeout, s.step(), cpuHint)
	default:
		return machine{}, fault.New(fault.NoDevice, "the NVIDIA driver does not work: %s: %w; %s", s.step(), err, cpuHint)
	}
}

// patience is how long one GPU may take: one without persistence mode takes a second
// or two.
func patience(timeout time.Duration) time.Duration { return timeout * 2 / 5 }

// errGivenUp: nobody waits for the answer any more.
var errGivenUp = errors.New("given up")

// scanner is one pass over the machine.
type scanner struct {
	api     API
	at      atomic.Pointer[string] // read by the caller while run hangs
	driver  string
	count   int
	counted chan error     // then driver and count are known
	answers chan candidate // one for each GPU
	next    atomic.Int64   // the GPU to be asked next
	asked   sync.Map       // when each was
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
	s.enter("initialise NVML")
	if err := s.api.Init(); err != nil {
		s.counted <- err // and not a single call more
		return
	}
	defer close(s.ended)
	// What Shutdown says changes nothing: all there is to know is known.
	defer func() { _ = s.api.Shutdown() }()
	if ctx.Err() != nil {
		return
	}
	s.enter("ask for the driver's version")
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

// askNext asks one GPU after the other that nobody else asks, until there is none or
// nobody waits for the answers.
func (s *scanner) askNext(ctx context.Context) {
	for ctx.Err() == nil {
		i := int(s.next.Add(1)) - 1
		if i >= s.count {
			return
		}
		s.enter(fmt.Sprintf("ask GPU %d", i))
		s.asked.Store(i, time.Now())
		select {
		case s.answers <- s.describe(i):
		case <-ctx.Done():
			return
		}
	}
}

// askRest asks each GPU that was not asked yet on a thread of its own.
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

// collect waits for the answers. A GPU that hangs is waited for as long as patience
// says, and as long as others are; while none has answered, until ctx ends.
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
		m.gpus[i] = candidate{Device: Device{Kind: GPU, Index: i, Name: unknownName}, gone: errHangs}
	}
	check := time.NewTicker(max(patience/20, time.Millisecond))
	defer check.Stop()
	wide := false // each has a thread of its own
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

// stuck says whether a GPU that has not answered was asked so long ago, and whether
// all of those were.
func (s *scanner) stuck(m machine, patience time.Duration) (some, all bool) {
	all = true
	for i, g := range m.gpus {
		if !errors.Is(g.gone, errHangs) {
			continue
		}
		asked, _ := s.asked.Load(i)
		began, was := asked.(time.Time)
		late := was && time.Since(began) > patience
		some, all = some || late, all && late
	}
	return some, all
}

// complete says that every GPU has answered.
func (m machine) complete() bool {
	return !slices.ContainsFunc(m.gpus, func(g candidate) bool { return errors.Is(g.gone, errHangs) })
}
