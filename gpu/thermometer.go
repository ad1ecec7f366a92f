package gpu

import (
	"fmt"
	"time"
)

// A working card reports temperatures in this range. Broken sensors and drivers report 0,
// 255 or -1.
const (
	coldest = 1
	hottest = 130
)

// A die may cool by fallAtOnce °C when its load ends, and then by fallPerSecond.
const (
	fallAtOnce    = 30
	fallPerSecond = 5
)

// thermometer tells plausible temperatures of a device from others, which count as
// unreadable: a device must not resume at full speed because of a sensor that broke.
type thermometer struct {
	celsius int
	at      time.Time // of the last plausible temperature; zero before the first
}

// check removes implausible values from a sample. It accepts a steep fall once it has lasted
// long enough to be possible.
func (t *thermometer) check(s *Sample, now time.Time) {
	for _, threshold := range []*Optional[int]{&s.Slowdown, &s.Shutdown} {
		if limit, known := threshold.Get(); known && !plausible(limit) {
			*threshold = Optional[int]{}
		}
	}
	celsius, known := s.Temperature.Get()
	if !known {
		return
	}
	reason := ""
	switch possible := fallAtOnce + int(fallPerSecond*now.Sub(t.at).Seconds()); {
	case !plausible(celsius):
		reason = fmt.Sprintf("the driver reports %d°C", celsius)
	case !t.at.IsZero() && t.celsius-celsius > possible:
		reason = fmt.Sprintf("the driver reports a fall from %d to %d°C within %s", t.celsius, celsius, now.Sub(t.at).Round(100*time.Millisecond))
	default:
		t.celsius, t.at = celsius, now
		return
	}
	s.Temperature, s.TemperatureError = Optional[int]{}, reason
}

func plausible(celsius int) bool { return coldest <= celsius && celsius <= hottest }
