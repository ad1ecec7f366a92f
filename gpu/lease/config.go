package lease

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/gpurun/gpurun/internal/fault"
)

// Config is the host administrator's policy for its GPUs, a YAML file.
//
//	memory_limit_mb: 0            # leasable memory of each GPU; 0: all
//	memory_reserve_mb: 512
//	optimization:
//	  interval: 300               # seconds, for gpurun gpus watch
//	  memory_threshold: 0.85
//	  allocation_timeout: 30      # seconds
//	  deallocation_timeout: 10
//	monitor:
//	  update_interval: 30         # seconds, for gpurun serve
//	  metrics_retention: 3600
//	services:
//	  embedding_service:
//	    min_memory_mb: 2048
//	    max_memory_mb: 8192
//	    preferred_device: null
type Config struct {
	// MemoryLimitMB is how much of each GPU may be leased, 0 for all of it.
	MemoryLimitMB int64 `yaml:"memory_limit_mb"`
	// MemoryReserveMB of each GPU are never leased: contexts and libraries use
	// memory that no request accounts for.
	MemoryReserveMB int64             `yaml:"memory_reserve_mb"`
	Optimization    Optimization      `yaml:"optimization"`
	Monitor         Monitor           `yaml:"monitor"`
	Services        map[string]*Quota `yaml:"services"`
}

// Optimization says when and how often services are asked to release memory.
type Optimization struct {
	Interval            float64 `yaml:"interval"`
	MemoryThreshold     float64 `yaml:"memory_threshold"`
	AllocationTimeout   float64 `yaml:"allocation_timeout"`
	DeallocationTimeout float64 `yaml:"deallocation_timeout"`
}

// Monitor says what gpurun serve keeps of the GPUs' past.
type Monitor struct {
	// UpdateInterval is how many seconds apart the kept samples are, MetricsRetention for
	// how many seconds they are kept.
	UpdateInterval   float64 `yaml:"update_interval"`
	MetricsRetention float64 `yaml:"metrics_retention"`
}

// Quota bounds what one service may hold; 0 means unlimited.
type Quota struct {
	// MinMemoryMB is the smallest useful lease.
	MinMemoryMB int64 `yaml:"min_memory_mb"`
	// MaxMemoryMB bounds all its leases together.
	MaxMemoryMB int64 `yaml:"max_memory_mb"`
	// PreferredDevice is the index of the GPU to use if it has room.
	PreferredDevice *int `yaml:"preferred_device"`
}

// DefaultConfig is the configuration without a file.
func DefaultConfig() Config {
	return Config{
		MemoryReserveMB: 512,
		Optimization:    Optimization{Interval: 300, MemoryThreshold: 0.85, AllocationTimeout: 30, DeallocationTimeout: 10},
		Monitor:         Monitor{UpdateInterval: 30, MetricsRetention: 3600},
	}
}

// ConfigFile is the default configuration file.
const ConfigFile = "/etc/gpurun/gpus.yaml"

// ReadConfig reads a file, or, with an empty path, ConfigFile if it exists. Settings
// missing from the file keep their defaults; invalid ones are a fault.Usage.
func ReadConfig(path string) (Config, error) {
	c := DefaultConfig()
	named := path != ""
	if !named {
		path = ConfigFile
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && !named {
		return c, nil
	}
	if err != nil {
		return c, fault.QuotaFile.New("read the service quotas: %w", err)
	}
	if err := yaml.UnmarshalWithOptions(data, &c, yaml.Strict()); err != nil {
		return c, fault.QuotaFile.New("%s: %s", path, yaml.FormatError(err, false, true))
	}
	if err := c.check(); err != nil {
		return c, fault.QuotaFile.New("%s: %w", path, err)
	}
	return c, nil
}

func (c Config) check() error {
	for name, value := range map[string]int64{"memory_limit_mb": c.MemoryLimitMB, "memory_reserve_mb": c.MemoryReserveMB} {
		if err := checkMB(name, value); err != nil {
			return err
		}
	}
	if t := c.Optimization.MemoryThreshold; !(t > 0 && t <= 1) {
		return fmt.Errorf("memory_threshold is %v: it must be a fraction above 0 and up to 1", t)
	}
	for name, value := range map[string]float64{
		"interval": c.Optimization.Interval, "allocation_timeout": c.Optimization.AllocationTimeout,
		"deallocation_timeout": c.Optimization.DeallocationTimeout,
		"update_interval":      c.Monitor.UpdateInterval, "metrics_retention": c.Monitor.MetricsRetention,
	} {
		if !(value >= 0 && value <= 1e9) {
			return fmt.Errorf("%s is %v: it must be a number of seconds", name, value)
		}
	}
	for name, quota := range c.Services {
		if err := quota.check(); err != nil {
			return fmt.Errorf("service %s: %w", name, err)
		}
	}
	return nil
}

func (q *Quota) check() error {
	if q == nil {
		return nil
	}
	for name, value := range map[string]int64{"min_memory_mb": q.MinMemoryMB, "max_memory_mb": q.MaxMemoryMB} {
		if err := checkMB(name, value); err != nil {
			return err
		}
	}
	if q.MaxMemoryMB > 0 && q.MinMemoryMB > q.MaxMemoryMB {
		return fmt.Errorf("min_memory_mb %d is more than max_memory_mb %d", q.MinMemoryMB, q.MaxMemoryMB)
	}
	if q.PreferredDevice != nil && *q.PreferredDevice < 0 {
		return fmt.Errorf("preferred_device is %d: it must be the index of a GPU", *q.PreferredDevice)
	}
	return nil
}

func checkMB(name string, value int64) error {
	if value < 0 || value > math.MaxInt64/MiB {
		return fmt.Errorf("%s is %d: it must be a number of MiB", name, value)
	}
	return nil
}

// Limits returns the limits of every GPU.
func (c Config) Limits() Limits {
	return Limits{Memory: uint64(c.MemoryLimitMB) * MiB, Reserve: uint64(c.MemoryReserveMB) * MiB}
}

// QuotaOf returns the quota of a service; unlimited if it is not in the file.
func (c Config) QuotaOf(name string) Quota {
	for service, quota := range c.Services {
		if SameName(service, name) && quota != nil {
			return *quota
		}
	}
	return Quota{}
}

// Prefer is the value for Request.Prefer.
func (q Quota) Prefer() int {
	if q.PreferredDevice == nil {
		return -1
	}
	return *q.PreferredDevice
}

// Seconds converts the file's numbers to a duration.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Check rejects a size outside the quota, which waiting cannot fix.
func (q Quota) Check(name string, memory uint64) error {
	switch least, most := uint64(q.MinMemoryMB)*MiB, uint64(q.MaxMemoryMB)*MiB; {
	case memory < least:
		return fault.BadLease.New("%s needs at least %s (min_memory_mb), but %s were requested", name, mib(least), mib(memory))
	case most > 0 && memory > most:
		return fault.BadLease.New("%s may hold at most %s (max_memory_mb), but %s were requested", name, mib(most), mib(memory))
	}
	return nil
}

// room is how many more leases of the request's size the service may take.
func (q Quota) room(r Request, living []Lease) int {
	if q.MaxMemoryMB == 0 || r.Memory == 0 {
		return math.MaxInt
	}
	return int(min(sub(uint64(q.MaxMemoryMB)*MiB, r.has(living))/r.Memory, math.MaxInt32))
}

// why explains that there is no room.
func (q Quota) why(r Request, living []Lease) string {
	return fmt.Sprintf("it may hold at most %d MiB (max_memory_mb), holds %s and requests %s on %s",
		q.MaxMemoryMB, mib(r.has(living)), mib(r.Memory), plural(r.least(1), "GPU"))
}

// has is how much memory the service holds.
func (r Request) has(living []Lease) (bytes uint64) {
	for _, l := range living {
		if SameName(l.Name, r.Name) {
			bytes += l.Memory
		}
	}
	return bytes
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
