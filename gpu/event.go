package gpu

import (
	"fmt"
	"time"
)

// EventKind is what happened to a device.
type EventKind string

// The events.
const (
	// StateChange: the device's state has changed.
	StateChange EventKind = "state_change"
	// Throttle: it became THROTTLED or CRITICAL.
	Throttle EventKind = "throttle"
	// Resume: it is no longer either.
	Resume EventKind = "resume"
	// BecameCritical: it became CRITICAL.
	BecameCritical EventKind = "critical"
	// Overheat: it is above its slowdown temperature; its chunk must be returned at
	// once.
	Overheat EventKind = "overheat"
	// Unseen: its temperature can no longer be read. It keeps its state for the state's
	// minimum duration and does not become faster.
	Unseen EventKind = "unseen"
	// Seen: its temperature could be read again, for the minimum duration of a state.
	Seen EventKind = "seen"
	// MemoryErrors: it has had its first uncorrected memory errors since monitoring
	// began. Reported once.
	MemoryErrors EventKind = "memory_errors"
	// Clocks: the reasons for which it lowers its own clocks have changed.
	Clocks EventKind = "clocks"
	// Reset: it was reset, or its driver was reloaded. Its counters began again, or it was
	// lost and answers.
	Reset EventKind = "reset"
)

// eventKinds are all of them, in the order in which one sample reports them.
var eventKinds = []EventKind{Unseen, Seen, StateChange, Throttle, Resume, BecameCritical, Overheat, MemoryErrors, Clocks, Reset}

// Event is a change that a Monitor has observed.
type Event struct {
	Kind   EventKind `json:"kind"`
	Device Device    `json:"device"`
	Time   time.Time `json:"time"`
	From   State     `json:"from"`
	To     State     `json:"to"`
	// Pace is how fast the device may go from now on.
	Pace        float64           `json:"pace"`
	Temperature Optional[int]     `json:"temperature_c,omitzero"`
	Memory      Optional[float64] `json:"memory_percent,omitzero"`
	// Clocks are the reasons for which the card lowers its own clocks, as in Health.
	Clocks Reasons `json:"throttle_reasons,omitzero"`
	// ECCUncorrected is the number of uncorrected memory errors since monitoring began.
	ECCUncorrected Optional[uint64] `json:"ecc_uncorrected,omitzero"`
	// Problem is why the device is not monitored.
	Problem string `json:"problem,omitempty"`
}

// String returns the event as a log line.
func (e Event) String() string {
	text := fmt.Sprintf("%s: %s %s → %s", e.Device, e.Kind, e.From, e.To)
	if celsius, known := e.Temperature.Get(); known {
		text += fmt.Sprintf(", %d °C", celsius)
	}
	return text
}

// changes lists the events between two states of a device, in reporting order.
func changes(before, after *watched, now time.Time) []Event {
	happened := map[EventKind]bool{
		Unseen:         after.hidden && !before.hidden,
		Seen:           before.hidden && !after.hidden,
		StateChange:    after.state != before.state,
		Throttle:       after.slow() && !before.slow(),
		Resume:         before.slow() && !after.slow(),
		BecameCritical: after.state == Critical && before.state != Critical,
		Overheat:       after.tooHot && !before.tooHot,
		MemoryErrors:   after.uncorrected() > 0 && before.uncorrected() == 0,
		Clocks:         after.clocks != before.clocks,
		Reset:          after.resets > before.resets,
	}
	var kinds []EventKind
	for _, kind := range eventKinds {
		if happened[kind] {
			kinds = append(kinds, kind)
		}
	}
	events := make([]Event, len(kinds))
	for i, kind := range kinds {
		events[i] = Event{
			Kind: kind, Device: after.device, Time: now, From: before.state, To: after.state,
			Pace: after.pace, Memory: after.percent, Clocks: after.clocks, ECCUncorrected: after.total.ECCUncorrected,
		}
		if after.problem != nil {
			events[i].Problem = after.problem.Error()
		} else {
			events[i].Temperature = after.last.Temperature
		}
	}
	return events
}

// On registers f for every event of a kind. Events are delivered in order, one at a
// time, on the polling goroutine, so f must be fast.
func (m *Monitor) On(kind EventKind, f func(Event)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.callbacks[kind] = append(m.callbacks[kind], f)
}

// OnAny registers f for every event.
func (m *Monitor) OnAny(f func(Event)) {
	for _, kind := range eventKinds {
		m.On(kind, f)
	}
}

func (m *Monitor) emit(events []Event) {
	for _, event := range events {
		m.mu.Lock()
		callbacks := m.callbacks[event.Kind]
		m.mu.Unlock()
		for _, f := range callbacks {
			f(event)
		}
	}
}
