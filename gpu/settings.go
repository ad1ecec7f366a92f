package gpu

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/nearest"
)

// setting is one setting of the configuration file.
type setting struct {
	field     any // *int, or *time.Duration, which the file has in seconds
	low, high float64
}

// settings are the settings by name, with their ranges.
func (c *Config) settings() map[string]setting {
	return map[string]setting{
		"temp_optimal":              {&c.TempOptimal, 0, 150},
		"temp_normal":               {&c.TempNormal, 0, 150},
		"temp_throttle":             {&c.TempThrottle, 0, 150},
		"temp_critical":             {&c.TempCritical, 0, 150},
		"memory_optimal":            {&c.MemoryOptimal, 1, 100},
		"memory_normal":             {&c.MemoryNormal, 1, 100},
		"memory_critical":           {&c.MemoryCritical, 1, 100},
		"memory_limit_mb":           {&c.MemoryLimit, 0, 1 << 30},
		"memory_reserve_mb":         {&c.MemoryReserve, 0, 1 << 30},
		"monitor_interval":          {&c.Interval, 0.1, 3600},
		"history_size":              {&c.HistorySize, 1, 1 << 20},
		"throttle_cooldown_seconds": {&c.ThrottleCooldown, 0, 86400},
		"critical_pause_seconds":    {&c.CriticalPause, 0, 86400},
	}
}

// Range is what a setting may be.
type Range struct {
	Low, High float64
	Integer   bool
}

// Ranges returns the ranges of the settings by their names in the file.
func Ranges() map[string]Range {
	all := make(map[string]Range)
	for name, s := range new(Config).settings() {
		_, integer := s.field.(*int)
		all[name] = Range{s.low, s.high, integer}
	}
	return all
}

// With returns the configuration with some settings changed, by their names in the
// file. Every error is a fault.Usage that states what is valid.
func (c Config) With(changes map[string]any) (Config, error) {
	settings := c.settings()
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		s, exists := settings[name]
		if !exists {
			known := slices.Sorted(maps.Keys(settings))
			return c, fault.MonitorConfig.New("unknown setting %q%s", name, nearest.Hint(strings.ToLower(name), known, max(3, len(name)/3), "; valid settings are "+strings.Join(known, ", ")))
		}
		value, ok := parseNumber(changes[name])
		if !ok || !(s.low <= value && value <= s.high) { // also rejects NaN
			return c, fault.MonitorConfig.New("%s: %s is not a number from %g to %g", name, written(changes[name]), s.low, s.high)
		}
		switch field := s.field.(type) {
		case *time.Duration:
			*field = time.Duration(value * float64(time.Second))
		case *int:
			if value != math.Trunc(value) {
				return c, fault.MonitorConfig.New("%s: %s is not an integer", name, written(changes[name]))
			}
			*field = int(value)
		}
	}
	return c, c.check()
}

// Settings returns the settings by their names in the file.
func (c Config) Settings() map[string]any {
	all := make(map[string]any)
	for name, s := range c.settings() {
		switch field := s.field.(type) {
		case *time.Duration:
			all[name] = field.Seconds()
		case *int:
			all[name] = *field
		}
	}
	return all
}

// check checks that the thresholds increase. One of 0 is derived from the device.
func (c Config) check() error {
	settings := c.settings()
	for _, rising := range [][]string{
		{"temp_optimal", "temp_normal", "temp_throttle", "temp_critical"},
		{"memory_optimal", "memory_normal", "memory_critical"},
	} {
		before, least := "", 0
		for _, name := range rising {
			value := *settings[name].field.(*int)
			if value > 0 && value < least {
				return fault.MonitorConfig.New("%s (%d) is below %s (%d): thresholds must increase", name, value, before, least)
			}
			if value > 0 {
				before, least = name, value
			}
		}
	}
	return nil
}

// parseNumber converts numbers as YAML and JSON decode them, and durations like 3s.
func parseNumber(value any) (number float64, ok bool) {
	switch v := value.(type) {
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, true
	case string:
		if d, err := time.ParseDuration(v); err == nil {
			return d.Seconds(), true
		}
		number, err := strconv.ParseFloat(v, 64)
		return number, err == nil
	}
	return 0, false
}

// written is a value as in the file.
func written(value any) string {
	if text, is := value.(string); is {
		return text
	}
	if text, err := json.Marshal(value); err == nil {
		return string(text)
	}
	return fmt.Sprint(value) // NaN
}

// LoadConfig reads a settings file (YAML, and so JSON too) on top of the defaults.
// Every error is a fault.Usage.
func LoadConfig(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fault.MonitorConfig.New("read monitor configuration: %w", err)
	}
	var changes map[string]any
	if err := yaml.Unmarshal(data, &changes); err != nil {
		return Config{}, fault.MonitorConfig.New("%s is not a YAML mapping of names to numbers: %s", path, yaml.FormatError(err, false, false))
	}
	c, err := DefaultConfig().With(changes)
	if err != nil {
		return Config{}, fault.MonitorConfig.New("%s: %w", path, err)
	}
	return c, nil
}
