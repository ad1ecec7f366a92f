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
	number   func(*Config) *int
	duration func(*Config) *time.Duration
	low      float64
	high     float64
}

// settings are the settings by name, with their ranges. Durations are in seconds.
var settings = map[string]setting{
	"temp_optimal":              {number: func(c *Config) *int { return &c.TempOptimal }, low: 0, high: 150},
	"temp_normal":               {number: func(c *Config) *int { return &c.TempNormal }, low: 0, high: 150},
	"temp_throttle":             {number: func(c *Config) *int { return &c.TempThrottle }, low: 0, high: 150},
	"temp_critical":             {number: func(c *Config) *int { return &c.TempCritical }, low: 0, high: 150},
	"memory_optimal":            {number: func(c *Config) *int { return &c.MemoryOptimal }, low: 1, high: 100},
	"memory_normal":             {number: func(c *Config) *int { return &c.MemoryNormal }, low: 1, high: 100},
	"memory_critical":           {number: func(c *Config) *int { return &c.MemoryCritical }, low: 1, high: 100},
	"memory_limit_mb":           {number: func(c *Config) *int { return &c.MemoryLimit }, low: 0, high: 1 << 30},
	"memory_reserve_mb":         {number: func(c *Config) *int { return &c.MemoryReserve }, low: 0, high: 1 << 30},
	"monitor_interval":          {duration: func(c *Config) *time.Duration { return &c.Interval }, low: 0.1, high: 3600},
	"history_size":              {number: func(c *Config) *int { return &c.HistorySize }, low: 1, high: 1 << 20},
	"throttle_cooldown_seconds": {duration: func(c *Config) *time.Duration { return &c.ThrottleCooldown }, low: 0, high: 86400},
	"critical_pause_seconds":    {duration: func(c *Config) *time.Duration { return &c.CriticalPause }, low: 0, high: 86400},
}

// Range is what a setting may be.
type Range struct {
	Low, High float64
	Integer   bool
}

// Ranges returns the ranges of the settings by their names in the file.
func Ranges() map[string]Range {
	all := make(map[string]Range, len(settings))
	for name, s := range settings {
		all[name] = Range{Low: s.low, High: s.high, Integer: s.number != nil}
	}
	return all
}

// With returns the configuration with some settings changed, by their names in the
// file. Every error is a fault.Usage that states what is valid.
func (c Config) With(changes map[string]any) (Config, error) {
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		s, known := settings[name]
		if !known {
			return c, fault.MonitorConfig.New("unknown setting %q%s", name, didYouMean(name))
		}
		value, ok := parseNumber(changes[name])
		if !ok || !(s.low <= value && value <= s.high) { // also rejects NaN
			return c, fault.MonitorConfig.New("%s: %s is not a number from %g to %g", name, written(changes[name]), s.low, s.high)
		}
		if s.duration != nil {
			*s.duration(&c) = time.Duration(value * float64(time.Second))
			continue
		}
		if value != math.Trunc(value) {
			return c, fault.MonitorConfig.New("%s: %s is not an integer", name, written(changes[name]))
		}
		*s.number(&c) = int(value)
	}
	return c, c.check()
}

// Settings returns the settings by their names in the file.
func (c Config) Settings() map[string]any {
	all := make(map[string]any, len(settings))
	for name, s := range settings {
		if s.duration != nil {
			all[name] = s.duration(&c).Seconds()
		} else {
			all[name] = *s.number(&c)
		}
	}
	return all
}

// check checks that the thresholds increase.
func (c Config) check() error {
	for _, rising := range [][]string{
		{"temp_optimal", "temp_normal", "temp_throttle", "temp_critical"},
		{"memory_optimal", "memory_normal", "memory_critical"},
	} {
		before := ""
		for _, name := range rising {
			value := *settings[name].number(&c)
			if value == 0 { // derived from the device
				continue
			}
			if before != "" && value < *settings[before].number(&c) {
				return fault.MonitorConfig.New("%s (%d) is below %s (%d): thresholds must increase", name, value, before, *settings[before].number(&c))
			}
			before = name
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

// didYouMean suggests the nearest setting, or lists all settings.
func didYouMean(name string) string {
	known := slices.Sorted(maps.Keys(settings))
	if meant := nearest.Of(strings.ToLower(name), known, max(3, len(name)/3)); meant != "" {
		return fmt.Sprintf("; did you mean %s?", meant)
	}
	return "; valid settings are " + strings.Join(known, ", ")
}
