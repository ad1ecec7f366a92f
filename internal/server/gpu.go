package server

import (
	"net/http"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
)

// gpuAPI is the API of a host's GPUs, or of a job's.
type gpuAPI struct {
	book *book
	// settings returns the monitor's settings, none if nothing is monitored; configure changes
	// some, or nothing on error.
	settings  func() map[string]any
	configure func(map[string]any) error
	// leases are nil on the server of a job. allocation is who holds how much of a GPU; it returns
	// nil where leases are off.
	leases     *Leases
	allocation func(gpuID) *AllocationStats
}

// success is the body of a successful response.
type success[T any] struct {
	Success bool   `json:"success"` // always true
	Message string `json:"message,omitempty"`
	Data    T      `json:"data"`
}

func succeed[T any](w http.ResponseWriter, message string, data T) {
	answer(w, http.StatusOK, success[T]{true, message, data})
}

// GPUStatus is everything about one GPU.
type GPUStatus struct {
	Available   bool           `json:"available"`
	ID          gpuID          `json:"gpu_id"`
	UUID        string         `json:"uuid,omitempty"`
	Name        string         `json:"name,omitempty"`
	State       string         `json:"state"`
	Load        *float64       `json:"load_percent"`
	Temperature *float64       `json:"temperature_celsius"`
	Power       *float64       `json:"power_watts"`
	Memory      GPUMemory      `json:"memory"`
	Thresholds  map[string]int `json:"thresholds"`
	Throttling  Throttling     `json:"throttling"`
	Time        time.Time      `json:"timestamp,omitzero"`
	Message     string         `json:"message,omitempty"`
}

// GPUMemory is the memory of one GPU.
type GPUMemory struct {
	Used       *float64         `json:"used_mb"`
	Total      *float64         `json:"total_mb"`
	Share      *float64         `json:"percent"`
	Allocation *AllocationStats `json:"allocation_stats"`
}

// Throttling is how far a GPU, or the slowest of several, is slowed down.
type Throttling struct {
	Should  bool    `json:"should_throttle"`
	Is      bool    `json:"is_throttled"`
	Speed   float64 `json:"speed_multiplier"`
	Current string  `json:"current_state"`
}

func (r Reading) throttling() Throttling {
	return Throttling{Should: r.pace < 1, Is: r.pace < 1, Speed: r.pace, Current: r.State}
}

// ThrottleStatus is the throttling of the slowest GPU, and of each.
type ThrottleStatus struct {
	Throttling
	GPUs []GPUThrottling `json:"gpus"`
}

// GPUThrottling is the throttling of one GPU.
type GPUThrottling struct {
	ID gpuID `json:"gpu_id"`
	Throttling
}

func (a *gpuAPI) throttle() ThrottleStatus {
	status := ThrottleStatus{GPUs: []GPUThrottling{}, Throttling: Throttling{Speed: 1, Current: gpu.Unavailable.String()}}
	for i, r := range a.book.all() {
		t := r.throttling()
		status.GPUs = append(status.GPUs, GPUThrottling{r.ID, t})
		if i == 0 || t.Speed < status.Speed {
			status.Throttling = t
		}
	}
	return status
}

// status returns everything about a GPU.
func (a *gpuAPI) status(r Reading) GPUStatus {
	config, _ := gpu.DefaultConfig().With(a.settings()) // they are valid
	return GPUStatus{
		Available: r.State != gpu.Unavailable.String(), ID: r.ID, UUID: r.UUID, Name: r.Name, State: r.State, Load: r.Load,
		Temperature: r.Temperature, Power: r.Power, Thresholds: config.Thresholds(r.slowdown), Throttling: r.throttling(), Time: r.Time,
		Memory: GPUMemory{r.MemoryUsed, r.MemoryTotal, r.MemoryShare, a.allocation(r.ID)}, Message: r.Problem,
	}
}

// AllGPUs is the status of all GPUs.
type AllGPUs struct {
	Count int         `json:"gpu_count"`
	GPUs  []GPUStatus `json:"gpus"`
}

func (a *gpuAPI) all() AllGPUs {
	list := []GPUStatus{}
	for _, r := range a.book.all() {
		list = append(list, a.status(r))
	}
	return AllGPUs{len(list), list}
}

// Readings are past readings, oldest first.
type Readings struct {
	Count   int       `json:"count"`
	Metrics []Reading `json:"metrics"`
}

// Trend is how a temperature has changed.
type Trend struct {
	Minutes int64         `json:"duration_minutes"`
	Samples int           `json:"sample_count"`
	Current int           `json:"current_temp"`
	Min     int           `json:"min_temp"`
	Max     int           `json:"max_temp"`
	Average float64       `json:"avg_temp"`
	Trend   gpu.Direction `json:"trend"` // rising, falling, stable
	Stable  bool          `json:"is_stable"`
}

// trendOf is the trend of the last minutes; nil without a temperature.
func trendOf(readings []Reading, minutes int64, now time.Time) *Trend {
	var values []int
	for _, r := range readings {
		if r.Temperature != nil && now.Sub(r.Time) <= time.Duration(minutes)*time.Minute {
			values = append(values, int(*r.Temperature))
		}
	}
	t, known := gpu.TrendOf(values).Get()
	if !known {
		return nil
	}
	return &Trend{minutes, t.Samples, values[t.Samples-1], t.Min, t.Max, t.Average, t.Direction, t.Direction == gpu.Stable}
}

// Available is how much memory of a GPU can be allocated.
type Available struct {
	ID        gpuID    `json:"gpu_id"`
	Available *float64 `json:"available_mb"`
}

func (a *gpuAPI) available(r Reading) Available {
	available := Available{ID: r.ID}
	switch leased := a.allocation(r.ID); {
	case leased != nil:
		available.Available = &leased.Available
	case r.MemoryTotal != nil:
		free := *r.MemoryTotal - *r.MemoryUsed
		available.Available = &free
	}
	return available
}

// which returns the GPU that a request means: by its id or its UUID, the first unless given.
// If it returns false, it has responded with an error.
func (a *gpuAPI) which(w http.ResponseWriter, r *http.Request) (Reading, bool) {
	id := r.URL.Query().Get("gpu_id")
	var known []string
	for _, reading := range a.book.all() {
		if id == "" || string(reading.ID) == id || reading.UUID == id {
			return reading, true
		}
		known = append(known, string(reading.ID))
	}
	if len(known) == 0 {
		fail(w, http.StatusNotFound, "there is no GPU here")
	} else {
		fail(w, http.StatusNotFound, "there is no GPU %q here, only %s", id, gpu.Enumerate(known))
	}
	return Reading{}, false
}

// failWith responds with the error of a library.
func failWith(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	switch e := fault.As(fault.BadRequest.Wrap(err)); {
	case e.Code == fault.UnknownDevice:
		status = http.StatusNotFound
	case e.Kind == fault.Conflict, e.Kind == fault.NoDevice, e.Code == fault.Leased: // another time it may succeed
		status = http.StatusConflict
	}
	fail(w, status, "%v", err)
}
