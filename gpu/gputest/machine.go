// Package gputest is a machine with GPUs for tests: an in-memory driver whose state a
// test changes while the code under test reads it.
//
//	machine := gputest.EightGPUs()
//	options := gpu.Options{NVML: machine, Env: gputest.NoEnv}
//	machine.Change(2, func(c *gputest.Card) { c.Temperature(92) })
//
// It enforces the rules of the real library: nothing may be called before Init. For what
// an interface cannot express (a missing symbol, a process that dies in the driver), use
// the stub library in gpu/testdata/nvmlstub.
package gputest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gpurun/gpurun/gpu"
)

// GiB is the unit of a card's memory.
const GiB = 1 << 30

// Card is one GPU. A test changes it through Machine.Change.
type Card struct {
	UUID, Name string
	// UUIDError makes reading the UUID fail.
	UUIDError error
	// Sample is what its sensors report.
	Sample gpu.Sample
	// Lost cards return only gpu.ErrLost.
	Lost bool
	// MIG is whether it is in MIG mode; Instances are its MIG instances.
	MIG       bool
	Instances []Instance

	hang chan struct{} // if not nil, calls for the card wait until it is closed
}

// Instance is a MIG instance of a card.
type Instance struct {
	UUID   string
	Memory gpu.Memory
}

// Temperature sets the card's temperature.
func (c *Card) Temperature(celsius int) {
	c.Sample.Temperature, c.Sample.TemperatureError = gpu.Some(celsius), ""
}

// Unreadable makes reading the temperature fail.
func (c *Card) Unreadable(why string) {
	c.Sample.Temperature, c.Sample.TemperatureError = gpu.Optional[int]{}, why
}

// Use sets how much memory is in use, in GiB.
func (c *Card) Use(gib uint64) {
	m, _ := c.Sample.Memory.Get()
	m.Used, m.Free = gib*GiB, m.Total-gib*GiB
	c.Sample.Memory = gpu.Some(m)
}

// Machine is a driver with cards. It implements gpu.API and is safe for
// concurrent use.
type Machine struct {
	mu      sync.Mutex
	cards   []*Card
	users   int
	hang    chan struct{} // if not nil, calls wait until it is closed
	failed  error         // of Init
	events  []event
	changed chan struct{} // closed and replaced at each event
	calls   int
}

type event struct {
	card int
	xid  uint64
}

// New returns a machine with n cool, idle cards: 80 GiB each, of which 1 is in use, at
// 40 °C, slowing down at 89 °C.
func New(n int) *Machine {
	m := &Machine{changed: make(chan struct{})}
	for i := range n {
		m.cards = append(m.cards, &Card{
			UUID: fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i), Name: "NVIDIA H200",
			Sample: gpu.Sample{
				Temperature: gpu.Some(40), Slowdown: gpu.Some(89), Shutdown: gpu.Some(95),
				Utilization: gpu.Some(0), Power: gpu.Some(gpu.Watt(126)), PowerLimit: gpu.Some(gpu.Watt(700)),
				Energy: gpu.Some(gpu.Joule(1000)), ClockSM: gpu.Some(1980), ClockMemory: gpu.Some(3201),
				Throttle: gpu.Some(gpu.Reasons(0)), ECCCorrected: gpu.Some(uint64(0)), ECCUncorrected: gpu.Some(uint64(0)),
				Memory:    gpu.Some(gpu.Memory{Total: 80 * GiB, Used: GiB, Free: 79 * GiB}),
				Processes: gpu.Some([]gpu.Process{}),
			},
		})
	}
	return m
}

// The special cards of EightGPUs.
const (
	Hot       = 2 // 86 °C
	Dying     = 4 // for tests that lose a card
	Split     = 5 // in MIG mode, with two instances of 40 GiB
	Senseless = 6 // reports no temperature
)

// EightGPUs returns a machine with eight cards, one for each kind of trouble.
func EightGPUs() *Machine {
	m := New(8)
	m.cards[Hot].Temperature(86)
	m.cards[Split].MIG = true
	for i := range 2 {
		m.cards[Split].Instances = append(m.cards[Split].Instances, Instance{
			UUID:   fmt.Sprintf("MIG-%08x-%04x-4000-8000-000000000000", Split, i),
			Memory: gpu.Memory{Total: 40 * GiB, Free: 40 * GiB},
		})
	}
	m.cards[Senseless].Sample.Temperature = gpu.Optional[int]{}
	m.cards[Senseless].Sample.Slowdown = gpu.Optional[int]{}
	return m
}

// NoEnv is an environment without CUDA_VISIBLE_DEVICES, for gpu.Options.Env.
func NoEnv(string) (string, bool) { return "", false }

// Change changes a card between two driver calls.
func (m *Machine) Change(card int, change func(*Card)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m.cards[card])
}

// Lose makes a card fall off the bus: it reports Xid 79 and is lost.
func (m *Machine) Lose(card int) {
	m.Change(card, func(c *Card) { c.Lost = true })
	m.RaiseXid(card, 79)
}

// RaiseXid makes the driver report a critical error.
func (m *Machine) RaiseXid(card int, xid uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, event{card, xid})
	close(m.changed)
	m.changed = make(chan struct{})
}

// FailInit makes Init fail with err; nil makes it succeed again.
func (m *Machine) FailInit(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = err
}

// Hang makes every call hang until the returned function is called.
func (m *Machine) Hang() (release func()) { return m.hangAt(&m.hang) }

// HangCard makes every call for one card hang until the returned function is called. A
// call that hung returns what was true when it was made.
func (m *Machine) HangCard(card int) (release func()) { return m.hangAt(&m.cards[card].hang) }

func (m *Machine) hangAt(at *chan struct{}) (release func()) {
	hang := make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	*at = hang
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if *at == hang {
			*at = nil
		}
		close(hang)
	}
}

// await waits while a card hangs and reports whether it did. The caller must hold m.mu.
func (m *Machine) await(card int) (hung bool) {
	for m.cards[card].hang != nil {
		hang := m.cards[card].hang
		m.mu.Unlock()
		<-hang
		m.mu.Lock()
		hung = true
	}
	return hung
}

// Calls is the number of calls made.
func (m *Machine) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// Users is the number of Inits without a Shutdown.
func (m *Machine) Users() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.users
}

// errNotInitialized marks a call with which the real library would end the process.
var errNotInitialized = errors.New("gputest: called without a successful Init")

// enter begins every call and returns with m.mu held.
func (m *Machine) enter() {
	m.mu.Lock()
	m.calls++
	for m.hang != nil {
		hang := m.hang
		m.mu.Unlock()
		<-hang
		m.mu.Lock()
	}
	if m.users <= 0 {
		panic(errNotInitialized)
	}
}

// Init is part of gpu.API.
func (m *Machine) Init() error {
	m.mu.Lock()
	if m.failed == nil {
		m.users++
	}
	failed := m.failed
	m.mu.Unlock()
	if failed != nil {
		return failed
	}
	m.enter()
	m.mu.Unlock()
	return nil
}

// Shutdown is part of gpu.API.
func (m *Machine) Shutdown() error {
	m.enter()
	defer m.mu.Unlock()
	m.users--
	return nil
}

// DriverVersion is part of gpu.API.
func (m *Machine) DriverVersion() (string, error) {
	m.enter()
	defer m.mu.Unlock()
	return "580.00.00", nil
}

// Count is part of gpu.API.
func (m *Machine) Count() (int, error) {
	m.enter()
	defer m.mu.Unlock()
	return len(m.cards), nil
}

// Device is part of gpu.API.
func (m *Machine) Device(index int) (gpu.Handle, error) {
	m.enter()
	defer m.mu.Unlock()
	m.await(index)
	if m.cards[index].Lost {
		return nil, gpu.ErrLost
	}
	return handle{m, index, -1}, nil
}

// NewEventSet is part of gpu.API.
func (m *Machine) NewEventSet() (gpu.EventSet, error) {
	m.enter()
	defer m.mu.Unlock()
	return &eventSet{machine: m, cards: map[int]bool{}}, nil
}

type eventSet struct {
	machine *Machine
	cards   map[int]bool
	next    int // of machine.events
}

func (s *eventSet) Add(device gpu.Handle) error {
	s.machine.enter()
	defer s.machine.mu.Unlock()
	h := device.(handle)
	s.cards[h.index] = true
	return h.lost()
}

func (s *eventSet) Wait(timeout time.Duration) (gpu.Handle, uint64, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		s.machine.enter()
		for ; s.next < len(s.machine.events); s.next++ {
			if e := s.machine.events[s.next]; s.cards[e.card] {
				s.next++
				s.machine.mu.Unlock()
				return handle{s.machine, e.card, -1}, e.xid, nil
			}
		}
		changed := s.machine.changed
		s.machine.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return nil, 0, gpu.ErrTimeout
		}
	}
}

func (s *eventSet) Free() error { return nil }
