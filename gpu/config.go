package gpu

import "time"

// Config sets how devices are judged. A temperature of zero is derived from the
// device's own slowdown temperature S; if the device does not report S, it is the
// default.
type Config struct {
	// A device is OPTIMAL below TempOptimal (S-20, else 65 °C), NORMAL below
	// TempNormal (S-10, 75), THROTTLED below TempThrottle (S-4, 85), else CRITICAL;
	// above TempCritical (S, 90) its chunk is returned at once.
	TempOptimal  int
	TempNormal   int
	TempThrottle int
	TempCritical int
	// The same in percent of memory in use. Memory that the job itself holds does not
	// count. Defaults 70, 85, 95.
	MemoryOptimal  int
	MemoryNormal   int
	MemoryCritical int
	// MemoryLimit is how much of a device's memory all jobs together may use, 0 for
	// all of it; MemoryReserve is how much is left for others. Both are in MiB. They
	// bound how many workers "auto" starts.
	MemoryLimit   int
	MemoryReserve int
	// Interval is the time between two samples.
	Interval time.Duration
	// HistorySize is the number of samples kept.
	HistorySize int
	// ThrottleCooldown is how long a state lasts at least, CriticalPause how long
	// CRITICAL lasts at least.
	ThrottleCooldown time.Duration
	CriticalPause    time.Duration
}

// DefaultConfig returns the default configuration.
func DefaultConfig() Config {
	return Config{
		MemoryOptimal: 70, MemoryNormal: 85, MemoryCritical: 95, MemoryReserve: 512,
		Interval: 3 * time.Second, HistorySize: 200,
		ThrottleCooldown: 30 * time.Second, CriticalPause: time.Minute,
	}
}

// defaultLevels are the thresholds of a card that does not report its slowdown
// temperature; belowSlowdown is how far below that temperature they are if it does.
var (
	defaultLevels = [4]int{65, 75, 85, 90}
	belowSlowdown = [4]int{20, 10, 4, 0}
)

// plausibleSlowdown is the lowest plausible value: some virtual cards report 0 or 1.
const plausibleSlowdown = 50

// heat returns the temperatures at which a device's states begin, and the one above
// which it is too hot. Thresholds that are not configured stay between those that are.
func (c Config) heat(slowdown Optional[int]) (l levels, tooHot float64) {
	given := [4]int{c.TempOptimal, c.TempNormal, c.TempThrottle, c.TempCritical}
	var all [4]int
	for i := range all {
		all[i] = defaultLevels[i]
		if s := slowdown.Or(0); s >= plausibleSlowdown {
			all[i] = s - belowSlowdown[i]
		}
		for j, value := range given {
			switch {
			case value == 0:
			case j == i:
				all[i] = value
			case given[i] != 0:
			case j < i:
				all[i] = max(all[i], value)
			default:
				all[i] = min(all[i], value)
			}
		}
	}
	return levels{float64(all[0]), float64(all[1]), float64(all[2])}, float64(all[3])
}

// Thresholds returns the temperatures that apply to a device, by the names of the settings.
func (c Config) Thresholds(slowdown Optional[int]) map[string]int {
	l, tooHot := c.heat(slowdown)
	return map[string]int{
		"temp_optimal": int(l[0]), "temp_normal": int(l[1]), "temp_throttle": int(l[2]), "temp_critical": int(tooHot),
	}
}

func (c Config) stays() stays { return stays{usual: c.ThrottleCooldown, critical: c.CriticalPause} }

func (c Config) memory() levels {
	return levels{float64(c.MemoryOptimal), float64(c.MemoryNormal), float64(c.MemoryCritical)}
}
