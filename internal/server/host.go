package server

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/gpu/lease/claim"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/host"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/metrics"
	"github.com/gpurun/gpurun/internal/view"
)

// lookTime is how long the driver may take for an overview.
const lookTime = 5 * time.Second

// Host serves a host: its GPUs, leases, and the jobs of this user, running and past.
type Host struct {
	gpus     *gpuAPI
	rules    lease.Config
	observer *gpu.Observer
	// overview is the last one, current the same with the current leases.
	overview atomic.Pointer[host.Overview]
	current  *cached[*host.Overview]
	// jobs are the states of the running jobs.
	jobs *cached[[]jobs.State]
	// runs are jobs that machines share.
	runs []*watchedRun
	// recorded is the past job that was asked for last.
	recorded recordings
	// counted is up to when the allocations of other processes are counted.
	counted time.Time
}

// NewHost returns the backend of gpurun serve. Run must be called.
func NewHost(rules lease.Config) *Host {
	h := &Host{rules: rules, counted: time.Now(), observer: gpu.NewObserver(gpu.Options{Timeout: lookTime})}
	h.current = newCached(h.withLeases)
	h.gpus = &gpuAPI{
		book: &book{
			recent:   gpu.DefaultConfig().HistorySize,
			interval: lease.Seconds(rules.Monitor.UpdateInterval), retention: lease.Seconds(rules.Monitor.MetricsRetention),
		},
		settings: h.settings, configure: h.configure,
		leases: &Leases{Rules: rules, Devices: h.devices, Changed: h.current.drop, Account: h.allocation}, allocation: h.allocation,
	}
	h.jobs = newCached(func() []jobs.State { return jobs.States(context.Background(), jobs.List()) })
	return h
}

// CountAllocations sets where requests for memory are counted; call it before Run.
func (h *Host) CountAllocations(count *metrics.Allocations) { h.gpus.leases.Count = count }

// Run samples the GPUs until ctx ends, then releases the leases that were allocated here.
func (h *Host) Run(ctx context.Context) {
	defer h.gpus.leases.Close()
	defer h.observer.Close()
	for _, r := range h.runs {
		go r.run(ctx) // it may hang with its file system
	}
	for {
		h.look(ctx)
		select {
		case <-time.After(h.observer.Config().Interval):
		case <-ctx.Done():
			return
		}
	}
}

// look makes an overview and adds a reading of each GPU.
func (h *Host) look(ctx context.Context) {
	folder := leaseFolder()
	o := host.Look(ctx, h.observer, folder, h.rules.Limits())
	if ctx.Err() != nil {
		return
	}
	h.overview.Store(&o)
	h.current.drop()
	h.countAllocations(folder)
	paces := make(map[string]float64)
	for _, job := range o.Jobs {
		for _, d := range job.Devices {
			if pace, known := paces[d.UUID]; d.GPU && d.UUID != "" && (!known || d.Pace < pace) {
				paces[d.UUID] = d.Pace
			}
		}
	}
	var current []Reading
	for _, g := range o.GPUs {
		r := newReading(o.Time, g.Sample)
		r.ID, r.UUID, r.Name, r.State, r.Problem, r.pace = gpuID(g.ID()), g.UUID, g.Name, g.State, g.Problem+g.Lost, g.Pace
		if pace, known := paces[g.UUID]; known { // what its job does
			r.pace = pace
		}
		h.gpus.book.add(r)
		current = append(current, r)
	}
	h.gpus.book.forget(func(r Reading) bool { return slices.ContainsFunc(current, r.same) })
}

// leaseFolder is where leases are; nil if there are none, or a scheduler allocates the GPUs.
func leaseFolder() *lease.Folder {
	if claim.Scheduler() != "" {
		return nil
	}
	folder, _ := lease.OpenExisting("")
	return folder
}

// withLeases is the last overview with the current leases.
func (h *Host) withLeases() *host.Overview {
	o := h.overview.Load()
	folder := leaseFolder()
	if o == nil || folder == nil {
		return o
	}
	current := o.WithLeases(folder, h.rules.Limits())
	return &current
}

// allocation is who holds how much of a GPU.
func (h *Host) allocation(id gpuID) *AllocationStats {
	o := h.current.get()
	if o == nil || claim.Scheduler() != "" {
		return nil
	}
	for _, g := range o.GPUs {
		if gpuID(g.ID()) == id {
			return newAllocationStats(g.Account)
		}
	}
	return nil
}

// countAllocations counts the requests of other processes; those of this one are counted
// with their duration. Errors are ignored: metrics are not worth a failure.
func (h *Host) countAllocations(folder *lease.Folder) {
	count := h.gpus.leases.Count
	if folder == nil || count == nil {
		return
	}
	events := folder.History(maxCounted)
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
func (h *Host) devices() (list []gpu.Device) {
	if o := h.overview.Load(); o != nil {
		for _, g := range o.GPUs {
			if g.Lost == "" {
				list = append(list, g.Device)
			}
		}
	}
	return list
}

func (h *Host) settings() map[string]any { return h.observer.Config().Settings() }

// configure changes the settings of this server and of the running jobs' monitors. The
// settings are checked as a whole first. It fails if a job does not accept them; a job that
// ends meanwhile need not.
func (h *Host) configure(changes map[string]any) error {
	body, err := json.Marshal(changes)
	if err != nil {
		return err
	}
	if err := h.observer.Configure(changes); err != nil {
		return err
	}
	h.gpus.book.resize(h.observer.Config().HistorySize)
	ctx, cancel := context.WithTimeout(context.Background(), configureTime)
	defer cancel()
	entries := jobs.List()
	failed := make([]error, len(entries))
	var all sync.WaitGroup
	for i, e := range entries {
		all.Go(func() { failed[i] = configureJob(ctx, e, body) })
	}
	all.Wait()
	var refused []string
	for _, e := range jobs.List() { // those that have not ended
		i := slices.IndexFunc(entries, func(asked jobs.Entry) bool { return asked.ID == e.ID })
		if i >= 0 && failed[i] != nil {
			refused = append(refused, failed[i].Error())
		}
	}
	if len(refused) > 0 {
		return fault.SettingsRefused.New("%s; this server and all other jobs use the new settings", strings.Join(refused, "; "))
	}
	return nil
}

// configureTime is how long jobs may take to change their settings.
const configureTime = 2 * time.Second

// configureJob changes the settings of a job's monitor, if it has one.
func configureJob(ctx context.Context, e jobs.Entry, body []byte) error {
	const path = "/api/gpu/config"
	client := jobs.NewClient(e)
	data, err := client.Send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	var current success[map[string]any]
	if json.Unmarshal(data, &current) == nil && len(current.Data) == 0 {
		return nil
	}
	_, err = client.Send(ctx, http.MethodPut, path, body)
	return err
}

// ready implements Backend.
func (h *Host) ready() bool { return h.overview.Load() != nil }

// Metrics returns the source of the host's metrics and of its jobs'.
func (h *Host) Metrics() metrics.Source {
	return metrics.Source{
		Jobs: func() []jobs.State { return forMetrics(h.jobs.get()...) },
		GPUs: h.gpuMetrics, Runs: h.runMetrics,
	}
}

func (h *Host) gpuMetrics() (list []metrics.GPU) {
	o := h.current.get()
	if o == nil {
		return nil
	}
	for _, g := range o.GPUs {
		m := metrics.GPU{ID: g.ID(), UUID: g.UUID, Model: g.Name, Sample: g.Sample}
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

// systemRoute is the route of the host as a whole; overview may return nil.
func (a *gpuAPI) systemRoute(overview func() *host.Overview) route {
	reader := gpu.NewHostReader()
	state := newCached(reader.Read)
	get := func(w http.ResponseWriter, _ *http.Request) {
		h := state.get()
		memory := func(bytes gpu.Optional[uint64]) *float64 {
			if n, known := bytes.Get(); known {
				return new(megabytes(n))
			}
			return nil
		}
		succeed(w, "", SystemStatus{
			GPU: a.all(), CPU: CPUStatus{runtime.NumCPU(), view.Number(h.CPU)}, Memory: MemoryStatus{memory(h.MemoryTotal), memory(h.MemoryAvailable)}, Overview: overview(),
		})
	}
	return route{pattern: "GET /api/system/status", summary: "Get the host as a whole", answer: success[SystemStatus]{}, handler: get}
}
