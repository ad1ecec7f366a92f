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

// Event is a change that a Monitor has observed, and the health of the device after it.
type Event struct {
	Kind EventKind `json:"kind"`
	Time time.Time `json:"time"`
	From State     `json:"from"`
	Health
}

// String returns the event as a log line.
func (e Event) String() string {
	text := fmt.Sprintf("%s: %s %s → %s", e.Device, e.Kind, e.From, e.State)
	if celsius, known := e.Temperature().Get(); known {
		text += fmt.Sprintf(", %d °C", celsius)
	}
	return text
}

// changes lists the events between two states of a device, in reporting order.
func changes(before, after *watched, now time.Time) (events []Event) {
	for _, change := range []struct {
		kind     EventKind
		happened bool
	}{
		{Unseen, after.hidden && !before.hidden},
		{Seen, before.hidden && !after.hidden},
		{StateChange, after.State != before.State},
		{Throttle, after.slow() && !before.slow()},
		{Resume, before.slow() && !after.slow()},
		{BecameCritical, after.State == Critical && before.State != Critical},
		{Overheat, after.TooHot && !before.TooHot},
		{MemoryErrors, after.uncorrected() > 0 && before.uncorrected() == 0},
		{Clocks, after.Clocks != before.Clocks},
		{Reset, after.resets > before.resets},
	} {
		if change.happened {
			events = append(events, Event{Kind: change.kind, Time: now, From: before.State, Health: after.health(now)})
		}
	}
	return events
}
