package gpu

import "time"

// Config is how devices are judged. The zero value of a temperature is the
// device's own: what it says of the temperature S at which it slows itself, else
// the default.
type Config struct {
	// A device is OPTIMAL below TempOptimal (S-20, else 65 °C), NORMAL below
	// TempNormal (S-10, 75), THROTTLED below TempThrottle (S-4, 85), else CRITICAL;
	// above TempCritical (S, 90) its chunk is handed back at once.
	TempOptimal  int
	TempNormal   int
	TempThrottle int
	TempCritical int
	// The same in percent of the memory, of which what the job itself holds does
	// not count. Defaults 70, 85, 95.
	MemoryOptimal  int
	MemoryNormal   int
	MemoryCritical int
	// MemoryLimit is how much of a device's memory jobs may use together, 0 for all
	// of it; MemoryReserve is how much of it is left to others. Both in MiB; they
	// bound how many workers "auto" starts.
	MemoryLimit   int
	MemoryReserve int
	// Interval is the time between two samples.
	Interval time.Duration
	// HistorySize is how many samples are kept.
	HistorySize int
	// ThrottleCooldown is how long a state lasts at the least, CriticalPause how
	// long CRITICAL does.
	ThrottleCooldown time.Duration
	CriticalPause    time.Duration
}

// DefaultConfig returns what holds unless said otherwise.
func DefaultConfig() Config {
	return Config{
		MemoryOptimal: 70, MemoryNormal: 85, MemoryCritical: 95, MemoryReserve: 512,
		Interval: 3 * time.Second, HistorySize: 200,
		ThrottleCooldown: 30 * time.Second, CriticalPause: time.Minute,
	}
}

// defaultLevels are the temperatures of a card that does not tell its own, and
// belowSlowdown how far they are below its own where it does.
var (
	defaultLevels = [4]int{65, 75, 85, 90}
	belowSlowdown = [4]int{20, 10, 4, 0}
)

// plausibleSlowdown is the least that is believed: some virtual cards tell 0 or 1.
const plausibleSlowdown = 50

// heat returns the temperatures at which the states begin for a device, and that
// above which it is too hot. What is not configured stays between what is.
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

func (c Config) stays() stays { return stays{usual: c.ThrottleCooldown, critical: c.CriticalPause} }

func (c Config) memory() levels {
	return levels{float64(c.MemoryOptimal), float64(c.MemoryNormal), float64(c.MemoryCritical)}
}
