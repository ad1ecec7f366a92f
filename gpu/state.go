package gpu

import (
	"fmt"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// State is how a device is doing, from good to bad. The zero value is a device of
// which nothing is known.
type State uint8

// The states. Which temperatures and memory shares they stand for is in
// docs/monitoring.md.
const (
	Unavailable State = iota // not monitored: its pace is the last that was safe, full if none was needed
	Optimal
	Normal
	Throttled
	Critical
)

var stateNames = []string{"UNAVAILABLE", "OPTIMAL", "NORMAL", "THROTTLED", "CRITICAL"}

// String returns the state's name: "OPTIMAL".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("STATE-%d", uint8(s))
}

// MarshalText writes the name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a name; one that it does not know is Unavailable.
func (s *State) UnmarshalText(text []byte) error {
	*s = Unavailable
	for i, name := range stateNames {
		if name == string(text) {
			*s = State(i)
		}
	}
	return nil
}

// Profile is how fast a device may go in each state.
type Profile string

// The profiles.
const (
	// Datacenter leaves a card alone until it is close to slowing itself: there,
	// 75 °C is an ordinary temperature.
	Datacenter Profile = "datacenter"
	// Workstation begins to slow down earlier: somebody sits beside the fan.
	Workstation Profile = "workstation"
)

// CheckProfile refuses, by a fault.Usage, what is no profile.
func CheckProfile(name string) error {
	if paces[Profile(name)] == nil {
		return fault.New(fault.Usage, "--profile %q is neither %s nor %s", name, Datacenter, Workstation)
	}
	return nil
}

var paces = map[Profile]map[State]float64{
	Datacenter:  {Unavailable: 1, Optimal: 1, Normal: 1, Throttled: 0.5, Critical: 0},
	Workstation: {Unavailable: 1, Optimal: 1, Normal: 0.8, Throttled: 0.5, Critical: 0},
}

// memoryPace is the slowest that a full memory alone makes a device: waiting does
// not empty it.
const memoryPace = 0.5

// pace is the share of the time in which a device may compute.
func (p Profile) pace(heat, memory State) float64 {
	return min(paces[p][heat], max(memoryPace, paces[p][memory]))
}

// hysteresis is how far, in °C or in percent, a value must be below a state's
// threshold before the state is left.
const hysteresis = 3

// levels are the values from which on a device is in NORMAL, THROTTLED and
// CRITICAL.
type levels [3]float64

// of returns the state of a value that rises.
func (l levels) of(value float64) State {
	state := Optimal
	for _, threshold := range l {
		if value >= threshold {
			state++
		}
	}
	return state
}

// held returns the state that a value which falls has not left yet.
func (l levels) held(value float64) State {
	state := Optimal
	for _, threshold := range l {
		if value > threshold-hysteresis {
			state++
		}
	}
	return state
}

// ladder is a state that rises at once, as high as need be, and falls slowly, one
// step at a time. Without a value it never falls below what it was last seen at,
// except that a pause ends: see lose.
type ladder struct {
	state State // Unavailable: there never was a value
	since time.Time
	lost  time.Time // since when there is no value; zero: there is one, or never was
	blind bool      // there has been none for longer than the state lasts
}

// stays are how long a state lasts at the least.
type stays struct{ usual, critical time.Duration }

func (s stays) of(state State) time.Duration {
	if state == Critical {
		return s.critical
	}
	return s.usual
}

// move takes a new value.
func (d *ladder) move(now time.Time, value float64, l levels, stay stays) {
	d.lost, d.blind = time.Time{}, false
	switch up := l.of(value); {
	case up > d.state:
		d.state, d.since = up, now
	case l.held(value) < d.state && now.Sub(d.since) >= stay.of(d.state):
		d.state, d.since = d.state-1, now
	}
}

// lose is for a value that cannot be read any more. The state is held for as long as
// it lasts at the least. After that nothing is known: a device that paused goes on
// with caution, as if it were THROTTLED, and no device becomes faster.
func (d *ladder) lose(now time.Time, stay stays) {
	if d.state == Unavailable {
		return
	}
	if d.lost.IsZero() {
		d.lost = now
	}
	if !d.blind && now.Sub(d.lost) >= stay.of(d.state) {
		d.blind = true
		if d.state == Critical {
			d.state, d.since = Throttled, now
		}
	}
}
