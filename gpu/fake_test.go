package gpu

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

var errUnsupported = errors.New("not supported")

// fakeGPU is one card and its faults.
type fakeGPU struct {
	uuid, name  string
	lost        bool // no handle at all
	lostAfter   int  // > 0: lost at this call on its handle
	forbidden   bool
	unsupported []string
	noEvents    bool
	hang        chan struct{} // its calls return when it is closed
	calls       int           // guarded by the machine
}

// fakeMachine is a stateful API: it enforces the rules of the real library, and fails the
// test if the caller breaks them.
type fakeMachine struct {
	t         *testing.T
	gpus      []*fakeGPU
	initErr   error
	countErr  error
	hangInit  chan struct{} // Init returns when it is closed
	hangCount chan struct{}
	hangWait  chan struct{}
	noEvents  bool // NewEventSet fails
	waitErr   error
	events    chan fakeEvent

	mu      sync.Mutex
	users   int // Inits without a Shutdown
	broken  bool
	calls   []string
	ended   chan struct{} // closed by Shutdown
	endOnce sync.Once
}

func newFake(t *testing.T, names ...string) *fakeMachine {
	m := &fakeMachine{t: t, ended: make(chan struct{}), events: make(chan fakeEvent)}
	for i, name := range names {
		m.gpus = append(m.gpus, &fakeGPU{uuid: fakeUUID(i), name: name})
	}
	return m
}

// fakeUUID differs from the others in its first digit: "GPU-0aaa…", "GPU-1aaa…".
func fakeUUID(i int) string { return fmt.Sprintf("GPU-%daaaaaaa-0000-4000-8000-00000000000%d", i, i) }

// same returns the same model n times.
func same(n int) []string { return slices.Repeat([]string{"NVIDIA H200"}, n) }

func (m *fakeMachine) call(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, name)
	if m.broken || m.users == 0 && name != "Init" {
		m.t.Errorf("%s called without a successful Init: the real library would end the process", name)
	}
}

func (m *fakeMachine) called() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

func (m *fakeMachine) Init() error {
	m.call("Init")
	if m.hangInit != nil {
		<-m.hangInit
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken = m.initErr != nil; !m.broken {
		m.users++
	}
	return m.initErr
}

func (m *fakeMachine) Shutdown() error {
	m.call("Shutdown")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users--
	m.endOnce.Do(func() { close(m.ended) })
	return nil
}

func (m *fakeMachine) DriverVersion() (string, error) {
	m.call("DriverVersion")
	return "580.1", nil
}

func (m *fakeMachine) Count() (int, error) {
	m.call("Count")
	if m.hangCount != nil {
		<-m.hangCount
	}
	return len(m.gpus), m.countErr
}

func (m *fakeMachine) Device(i int) (Handle, error) {
	m.call("Device")
	switch g := m.gpus[i]; {
	case m.isLost(i):
		return nil, ErrLost
	case g.forbidden:
		return nil, errors.New("Insufficient Permissions")
	default:
		return fakeHandle{m, g, i}, nil
	}
}

type fakeHandle struct {
	m     *fakeMachine
	g     *fakeGPU
	index int
}

// count counts a call.
func (h fakeHandle) count() int {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	h.g.calls++
	return h.g.calls
}

func (h fakeHandle) ask(field string) error {
	h.m.call(field)
	if h.g.hang != nil {
		<-h.g.hang
	}
	calls := h.count()
	if h.m.isLost(h.index) || h.g.lostAfter > 0 && calls >= h.g.lostAfter {
		return ErrLost
	}
	if slices.Contains(h.g.unsupported, field) {
		return errUnsupported
	}
	return nil
}

func (h fakeHandle) UUID() (string, error) { return h.g.uuid, h.ask("UUID") }
func (h fakeHandle) Name() (string, error) { return h.g.name, h.ask("Name") }
func (h fakeHandle) Memory() (Optional[Memory], error) {
	return Some(Memory{Total: 100, Free: 90}), h.ask("Memory")
}
func (h fakeHandle) PCIBusID() (string, error) {
	return fmt.Sprintf("00000000:%02X:00.0", h.index), h.ask("PCIBusID")
}
func (h fakeHandle) CPUs() ([]int, error) { return []int{2 * h.index, 2*h.index + 1}, h.ask("CPUs") }

// It reports no sensor value and has no instance.
func (h fakeHandle) Sense(*Sample) error                  { return nil }
func (h fakeHandle) Instances() (bool, []Instance, error) { return false, nil, nil }

// lose makes GPU i fall off the bus.
func (m *fakeMachine) lose(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gpus[i].lost = true
}

func (m *fakeMachine) isLost(i int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gpus[i].lost
}

// fakeEvent is a critical error of a GPU.
type fakeEvent struct {
	index int
	xid   uint64
}

func (m *fakeMachine) NewEventSet() (EventSet, error) {
	m.call("NewEventSet")
	if m.noEvents {
		return nil, errUnsupported
	}
	return &fakeEventSet{m: m}, nil
}

type fakeEventSet struct {
	m     *fakeMachine
	gpus  []int
	freed bool
}

func (s *fakeEventSet) Add(gpu Handle) error {
	s.m.call("Add")
	h := gpu.(fakeHandle)
	if s.m.isLost(h.index) {
		return ErrLost
	}
	if h.g.noEvents {
		return errUnsupported
	}
	s.gpus = append(s.gpus, h.index)
	return nil
}

func (s *fakeEventSet) Wait(timeout time.Duration) (Handle, uint64, error) {
	s.m.call("Wait")
	if s.freed {
		s.m.t.Error("Wait on a set that was freed")
	}
	if s.m.hangWait != nil {
		<-s.m.hangWait
	}
	if s.m.waitErr != nil {
		return nil, 0, s.m.waitErr
	}
	for _, i := range s.gpus {
		if s.m.isLost(i) {
			return nil, 0, ErrLost
		}
	}
	select {
	case e := <-s.m.events:
		if !slices.Contains(s.gpus, e.index) {
			return nil, 0, ErrTimeout
		}
		// A new handle, as from NVML: only its UUID is the same.
		s.m.mu.Lock()
		g := *s.m.gpus[e.index]
		s.m.mu.Unlock()
		return fakeHandle{s.m, &g, e.index}, e.xid, nil
	case <-time.After(min(timeout, 10*time.Millisecond)): // keep tests fast
		return nil, 0, ErrTimeout
	}
}

func (s *fakeEventSet) Free() error {
	s.m.call("Free")
	s.freed = true
	return nil
}

// env returns an Options.Env with these "KEY=value" pairs.
func env(pairs ...string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		for _, pair := range pairs {
			if k := key + "="; len(pair) >= len(k) && pair[:len(k)] == k {
				return pair[len(k):], true
			}
		}
		return "", false
	}
}

// options is a machine with nothing in the environment and no driver files.
func options(api API, pairs ...string) Options {
	return Options{NVML: api, Env: env(pairs...), CPUs: 8, DriverPresent: func() bool { return false }}
}
