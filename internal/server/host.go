package server

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/gpu/lease/claim"
	"github.com/gpurun/gpurun/internal/host"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/metrics"
)

// lookTime is how long the driver may take for an overview.
const lookTime = 5 * time.Second

// Host serves a host: its GPUs, leases, and the jobs of this user, running and past.
type Host struct {
	gpus     *gpuAPI
	rules    lease.Config
	config   atomic.Pointer[gpu.Config]
	overview atomic.Pointer[host.Overview]
	// entries are the running jobs, jobs their states.
	entries *cached[[]jobs.Entry]
	jobs    *cached[[]JobState]
	// runs are jobs that machines share.
	runs []*watchedRun
	// recorded is the past job that was asked for last.
	recorded recordings
	// counted is up to when the allocations of other processes are counted.
	counted time.Time
}

// NewHost returns the backend of gpurun serve. Run must be called.
func NewHost(rules lease.Config) *Host {
	h := &Host{rules: rules, counted: time.Now()}
	config := gpu.DefaultConfig()
	h.config.Store(&config)
	b := newBook()
	b.interval, b.retention = lease.Seconds(rules.Monitor.UpdateInterval), lease.Seconds(rules.Monitor.MetricsRetention)
	h.gpus = &gpuAPI{book: b, settings: h.settings, configure: h.configure, leases: &Leases{Rules: rules, Devices: h.devices}}
	h.entries = newCached(jobs.List)
	h.jobs = newCached(func() []JobState { return askJobs(context.Background(), jobs.List()) })
	return h
}

// CountAllocations sets where requests for memory are counted; call it before Run.
func (h *Host) CountAllocations(count *metrics.Allocations) { h.gpus.leases.Count = count }

// Run samples the GPUs until ctx ends, then releases the leases that were allocated here.
func (h *Host) Run(ctx context.Context) {
	defer h.gpus.leases.Close()
	for _, r := range h.runs {
		go r.run(ctx) // it may hang with its file system
	}
	for {
		h.look(ctx)
		select {
		case <-time.After(h.config.Load().Interval):
		case <-ctx.Done():
			return
		}
	}
}

// look takes an overview and reads the GPUs.
func (h *Host) look(ctx context.Context) {
	var folder *lease.Folder
	if claim.Scheduler() == "" {
		folder, _ = lease.OpenExisting("")
	}
	o := host.Look(ctx, folder, h.rules.Limits(), gpu.Options{Timeout: lookTime})
	if ctx.Err() != nil {
		return
	}
	for i := range o.Jobs { // see JobInfo
		o.Jobs[i].Job.Command, o.Jobs[i].Job.Socket = "", ""
	}
	h.overview.Store(&o)
	h.countAllocations(folder)
	paces := make(map[string]float64)
	for _, job := range h.jobs.get() {
		for _, d := range job.Devices {
			if pace, known := paces[d.UUID]; d.GPU && (!known || d.Pace < pace) {
				paces[d.UUID] = d.Pace
			}
		}
	}
	for _, g := range o.GPUs {
		r := newReading(o.Time, g.Device, g.State)
		r.setSample(g.Sample.Utilization, g.Sample.Memory, g.Sample.Temperature, g.Sample.Power)
		r.Problem = g.Problem + g.Lost
		if pace, known := paces[g.UUID]; known {
			r.pace = pace
		} else if g.State == gpu.Critical.String() {
			r.pace = 0
		} else if g.State == gpu.Throttled.String() {
			r.pace = 0.5
		}
		if folder != nil {
			r.leases = newAllocationStats(g.Account)
		}
		h.gpus.book.add(r)
	}
	h.gpus.book.forget(func(r Reading) bool {
		return slices.ContainsFunc(o.GPUs, func(g host.GPU) bool { return g.UUID == r.UUID && g.Index == r.ID })
	})
}

// countAllocations counts the requests of other processes; those of this one are counted
// with their duration. Errors are ignored: metrics are not worth a failure.
func (h *Host) countAllocations(folder *lease.Folder) {
	count := h.gpus.leases.Count
	if folder == nil || count == nil {
		return
	}
	events, _ := folder.History(maxCounted)
	for _, e := range events {
		if !e.Time.After(h.counted) || e.Lease.PID == os.Getpid() {
			continue
		}
		if e.Event == lease.Allocated || e.Event == lease.Refused {
			count.CountOther(e.Lease.Name, e.Event == lease.Allocated)
		}
	}
	if n := len(events); n > 0 && events[n-1].Time.After(h.counted) {
		h.counted = events[n-1].Time
	}
}

// maxCounted is more than processes allocate between two readings.
const maxCounted = 1000

// devices returns the GPUs that can be leased.
func (h *Host) devices(context.Context) (list []gpu.Device, err error) {
	if o := h.overview.Load(); o != nil {
		for _, g := range o.GPUs {
			if g.Lost == "" {
				list = append(list, g.Device)
			}
		}
	}
	return list, nil
}

func (h *Host) settings() map[string]any { return h.config.Load().Settings() }

// configure changes the settings of this server and of the running jobs' monitors. The
// settings are checked as a whole first; a job that ends meanwhile needs none.
func (h *Host) configure(changes map[string]any) error {
	config, err := h.config.Load().With(changes)
	if err != nil {
		return err
	}
	h.config.Store(&config)
	h.gpus.book.resize(config.HistorySize)
	body, err := json.Marshal(changes)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, e := range jobs.List() {
		all.Go(func() { _ = jobs.NewClient(e).Put(context.Background(), "/api/gpu/config", body) })
	}
	all.Wait()
	return nil
}

// ready implements Backend.
func (h *Host) ready() bool { return h.overview.Load() != nil }

// Metrics returns the source of the host's metrics and of its jobs'.
func (h *Host) Metrics() metrics.Source {
	return metrics.Source{
		Jobs: func() (list []metrics.Job) {
			for _, s := range h.jobs.get() {
				if s.Trouble == "" {
					list = append(list, s.metrics())
				}
			}
			return list
		},
		GPUs: h.gpuMetrics, Runs: h.runMetrics,
	}
}

func (h *Host) gpuMetrics() (list []metrics.GPU) {
	o := h.overview.Load()
	if o == nil {
		return nil
	}
	for _, g := range o.GPUs {
		s := g.Sample
		m := metrics.GPU{
			Index: g.Index, UUID: g.UUID, Label: g.Device.String(), Model: g.Name, Utilization: s.Utilization,
			Memory: s.Memory, Temperature: s.Temperature, Power: s.Power, PowerLimit: s.PowerLimit, Throttle: s.Throttle,
		}
		if claim.Scheduler() == "" {
			m.Leased = gpu.Some(g.Account.Leased)
		}
		list = append(list, m)
	}
	return list
}

// SystemStatus is the host as a whole.
type SystemStatus struct {
	GPU    AllGPUs      `json:"gpu"`
	CPU    CPUStatus    `json:"cpu"`
	Memory MemoryStatus `json:"memory"`
	// Overview is what gpurun status --json prints.
	Overview *host.Overview `json:"overview"`
}

// CPUStatus is the load of the processors.
type CPUStatus struct {
	Cores   int      `json:"cores"`
	Percent *float64 `json:"percent"` // since the request before
}

// MemoryStatus is the host's memory.
type MemoryStatus struct {
	Total     *float64 `json:"total_mb"`
	Available *float64 `json:"available_mb"`
}

// systemStatus returns the handler of /api/system/status.
func systemStatus(gpus *gpuAPI, overview func() *host.Overview) http.HandlerFunc {
	reader := gpu.NewHostReader()
	state := newCached(reader.Read)
	return func(w http.ResponseWriter, _ *http.Request) {
		h := state.get()
		status := SystemStatus{GPU: gpus.all(), CPU: CPUStatus{Cores: runtime.NumCPU()}, Overview: overview()}
		if percent, known := h.CPU.Get(); known {
			status.CPU.Percent = &percent
		}
		if total, known := h.MemoryTotal.Get(); known {
			mb := megabytes(total)
			status.Memory.Total = &mb
		}
		if available, known := h.MemoryAvailable.Get(); known {
			mb := megabytes(available)
			status.Memory.Available = &mb
		}
		succeed(w, "", status)
	}
}
