package gpu

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// State is the condition of a device, from good to bad. The zero value means unknown.
type State uint8

// The states. docs/monitoring.md lists their temperatures and memory shares.
const (
	Unavailable State = iota // not monitored: it keeps its last safe pace, or full speed
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

// UnmarshalText reads a name; an unknown name is Unavailable.
func (s *State) UnmarshalText(text []byte) error {
	*s = State(max(0, slices.Index(stateNames, string(text))))
	return nil
}

// Profile sets the pace of a device in each state.
type Profile string

// The profiles.
const (
	// Datacenter does not slow a card until it is close to slowing itself down: in a
	// data center, 75 °C is an ordinary temperature.
	Datacenter Profile = "datacenter"
	// Workstation slows down earlier, to keep the fan quiet.
	Workstation Profile = "workstation"
)

// CheckProfile returns a fault.Usage for an unknown profile.
func CheckProfile(name string) error {
	if paces[Profile(name)] == nil {
		return fault.BadValue.New("profile %q is neither %s nor %s", name, Datacenter, Workstation).Set("profile")
	}
	return nil
}

var paces = map[Profile]map[State]float64{
	Datacenter:  {Unavailable: 1, Optimal: 1, Normal: 1, Throttled: 0.5, Critical: 0},
	Workstation: {Unavailable: 1, Optimal: 1, Normal: 0.8, Throttled: 0.5, Critical: 0},
}

// memoryPace is the slowest pace for full memory alone: waiting does not free it.
const memoryPace = 0.5

// pace is the fraction of time in which a device may compute.
func (p Profile) pace(heat, memory State) float64 {
	return min(paces[p][heat], max(memoryPace, paces[p][memory]))
}

// hysteresis is how far, in °C or percent, a value must fall below a state's threshold
// to leave the state.
const hysteresis = 3

// levels are the values at which NORMAL, THROTTLED and CRITICAL begin.
type levels [3]float64

// of returns the state of a rising value.
func (l levels) of(value float64) State {
	state := Optimal
	for _, threshold := range l {
		if value >= threshold {
			state++
		}
	}
	return state
}

// held returns the state that a falling value has not left yet.
func (l levels) held(value float64) State {
	state := Optimal
	for _, threshold := range l {
		if value > threshold-hysteresis {
			state++
		}
	}
	return state
}

// ladder is a state that rises immediately, by any number of steps, and falls slowly, one
// step at a time. Without a value it never falls, except that a pause ends: see valueLost.
type ladder struct {
	state State // Unavailable until the first value
	since time.Time
	lost  time.Time // when values stopped; zero if there is one, or never was
	blind bool      // no value for longer than the state's minimum duration
}

// stays are the minimum durations of states.
type stays struct{ usual, critical time.Duration }

func (s stays) of(state State) time.Duration {
	if state == Critical {
		return s.critical
	}
	return s.usual
}

// move applies a new value.
func (d *ladder) move(now time.Time, value float64, l levels, stay stays) {
	d.lost, d.blind = time.Time{}, false
	switch up := l.of(value); {
	case up > d.state:
		d.state, d.since = up, now
	case l.held(value) < d.state && now.Sub(d.since) >= stay.of(d.state):
		d.state, d.since = d.state-1, now
	}
}

// valueLost handles a value that can no longer be read. The state is kept for its minimum
// duration. After that a paused device resumes cautiously, as if it were THROTTLED, and
// any other device keeps its pace.
func (d *ladder) valueLost(now time.Time, stay stays) {
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
