package server

import (
	"context"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/gpu/lease/claim"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/metrics"
)

const (
	// defaultTTL is how long a lease lasts unless the request says so, maxTTL the longest.
	defaultTTL = time.Hour
	maxTTL     = 24 * time.Hour
	// maxRequired is more memory, in MiB, than any GPU has.
	maxRequired = 1 << 40
	// maxLeases is how many leases a server holds.
	maxLeases = 1000
)

// Leases holds the leases that were allocated through the API. They end when they expire,
// when they are deallocated, and with this process.
type Leases struct {
	// Rules are the quotas and limits, Devices the GPUs of the host.
	Rules   lease.Config
	Devices func() []gpu.Device
	// Count counts requests; Changed is called after a lease began or ended. Account is who holds how
	// much of a GPU then; nil if unknown.
	Count   *metrics.Allocations
	Changed func()
	Account func(gpuID) *AllocationStats

	mu   sync.Mutex
	held map[*heldLease]bool
}

// heldLease is a lease of one GPU.
type heldLease struct {
	*lease.Held
	name   string
	gpu    gpu.Device
	expiry *time.Timer
}

// means reports whether an id of a request means a GPU.
func means(id gpuID, d gpu.Device) bool { return string(id) == d.ID() || string(id) == d.UUID }

// AllocateRequest asks for memory of one GPU.
type AllocateRequest struct {
	ID       string   `json:"allocation_id"`
	Required int64    `json:"required_mb"`
	GPU      *gpuID   `json:"gpu_id,omitempty"`
	TTL      *float64 `json:"ttl_seconds,omitempty"`
}

// DeallocateRequest ends a lease.
type DeallocateRequest struct {
	ID  string `json:"allocation_id"`
	GPU *gpuID `json:"gpu_id,omitempty"`
}

// limits implements body.
func (AllocateRequest) limits() map[string]object {
	return map[string]object{
		"allocation_id": {"pattern": lease.NamePattern},
		"required_mb":   {"minimum": 1, "maximum": maxRequired},
		"ttl_seconds":   {"minimum": 0.001, "maximum": int(maxTTL.Seconds())},
		"gpu_id":        gpuIndex,
	}
}

// limits implements body.
func (DeallocateRequest) limits() map[string]object { return map[string]object{"gpu_id": gpuIndex} }

// gpuIndex are the limits of an index: what int can hold.
var gpuIndex = object{"minimum": 0, "maximum": math.MaxInt32}

// Allocated is the result of both.
type Allocated struct {
	ID        string     `json:"allocation_id"`
	GPU       gpuID      `json:"gpu_id"`
	Allocated float64    `json:"allocated_mb,omitempty"`
	Available *float64   `json:"available_mb"`
	Expires   *time.Time `json:"expires,omitempty"`
}

// AllocationStats is who holds how much of a GPU's memory.
type AllocationStats struct {
	Total       float64      `json:"total_mb"`
	Allocated   float64      `json:"allocated_mb"`
	Available   float64      `json:"available_mb"`
	Count       int          `json:"allocation_count"`
	Allocations []Allocation `json:"allocations"`
}

// Allocation is one lease.
type Allocation struct {
	Name      string  `json:"allocation_id"`
	Memory    float64 `json:"memory_mb"`
	Exclusive bool    `json:"exclusive"`
	User      string  `json:"user"`
	// Expires is absent if it never expires.
	Expires time.Time `json:"expires,omitzero"`
}

func newAllocationStats(a lease.Account) *AllocationStats {
	s := &AllocationStats{
		Total: megabytes(a.Total), Allocated: megabytes(a.Leased), Available: megabytes(a.Free),
		Count: len(a.Leases), Allocations: []Allocation{},
	}
	for _, l := range a.Leases {
		s.Allocations = append(s.Allocations, Allocation{l.Name, megabytes(l.Memory), l.Exclusive, l.User, l.Expires})
	}
	return s
}

// offered responds with 409 where there are no leases; l is nil on the server of a job.
func (l *Leases) offered(w http.ResponseWriter) bool {
	switch scheduler := claim.Scheduler(); {
	case scheduler != "":
		fail(w, http.StatusConflict, "leases are off: %s has allocated the GPUs", scheduler)
	case l == nil:
		fail(w, http.StatusConflict, "this server shows one job and leases nothing: use gpurun serve or gpurun gpus")
	default:
		return true
	}
	return false
}

func (l *Leases) postAllocate(w http.ResponseWriter, r *http.Request) {
	var request AllocateRequest
	if !decode(w, r, &request) || !l.offered(w) {
		return
	}
	started := time.Now()
	result, err := l.allocate(r.Context(), request)
	if lease.CheckName(request.ID) == nil {
		l.Count.Count(request.ID, time.Since(started), err == nil)
	}
	if err != nil {
		failWith(w, err)
		return
	}
	succeed(w, "", result)
}

// allocate leases what a request asks for, or nothing.
func (l *Leases) allocate(ctx context.Context, r AllocateRequest) (Allocated, error) {
	ttl := defaultTTL
	if r.TTL != nil {
		ttl = time.Duration(*r.TTL * float64(time.Second))
	}
	switch {
	case r.Required < 1 || r.Required > maxRequired:
		return Allocated{}, fault.BadLease.New("required_mb must be at least 1")
	case ttl <= 0 || ttl > maxTTL:
		return Allocated{}, fault.BadLease.New("ttl_seconds must be more than 0 and at most %d", int(maxTTL.Seconds()))
	}
	memory := uint64(r.Required) * lease.MiB
	if err := claim.CheckRequest(l.Rules, r.ID, memory); err != nil {
		return Allocated{}, err
	}
	devices, err := l.choose(r.GPU)
	if err != nil {
		return Allocated{}, err
	}
	held, chosen, err := claim.Allocate(ctx, l.Rules, devices, lease.Request{Name: r.ID, Memory: memory, Named: r.GPU != nil, Owned: true, TTL: ttl})
	if err != nil {
		return Allocated{}, err
	}
	got := held.Leases()[0]
	if !l.keep(&heldLease{Held: held, name: r.ID, gpu: chosen}, ttl) {
		held.Release()
		return Allocated{}, fault.LeaseInUse.New("this server already holds %d leases", maxLeases)
	}
	l.Changed()
	return Allocated{ID: r.ID, GPU: gpuID(chosen.ID()), Allocated: megabytes(got.Memory), Expires: &got.Expires, Available: l.available(chosen)}, nil
}

// choose returns the GPUs that a request may get.
func (l *Leases) choose(id *gpuID) ([]gpu.Device, error) {
	devices := l.Devices()
	if id != nil {
		for _, d := range devices {
			if means(*id, d) {
				return []gpu.Device{d}, nil
			}
		}
		return nil, fault.UnknownDevice.Of(fault.NoDevice, "there is no GPU %q", string(*id))
	}
	if len(devices) == 0 {
		return nil, fault.NoGPU.New("there is no GPU to lease")
	}
	return devices, nil
}

// available is how much of a GPU is left; nil if unknown.
func (l *Leases) available(d gpu.Device) *float64 {
	if account := l.Account(gpuID(d.ID())); account != nil {
		return &account.Available
	}
	return nil
}

// keep holds a lease until it expires.
func (l *Leases) keep(held *heldLease, ttl time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) >= maxLeases {
		return false
	}
	if l.held == nil {
		l.held = make(map[*heldLease]bool)
	}
	l.held[held] = true
	held.expiry = time.AfterFunc(ttl, func() { l.release(held) })
	return true
}

// release ends a lease; false if it has ended.
func (l *Leases) release(held *heldLease) bool {
	l.mu.Lock()
	known := l.held[held]
	delete(l.held, held)
	l.mu.Unlock()
	if known {
		held.expiry.Stop()
		held.Release()
		l.Changed()
	}
	return known
}

func (l *Leases) postDeallocate(w http.ResponseWriter, r *http.Request) {
	var request DeallocateRequest
	if !decode(w, r, &request) || !l.offered(w) {
		return
	}
	for _, held := range l.list() {
		if held.name == request.ID && (request.GPU == nil || means(*request.GPU, held.gpu)) && l.release(held) {
			succeed(w, "", Allocated{ID: request.ID, GPU: gpuID(held.gpu.ID()), Available: l.available(held.gpu)})
			return
		}
	}
	fail(w, http.StatusNotFound, "%q holds nothing that was allocated here", request.ID)
}

// list returns the leases that are held now.
func (l *Leases) list() []*heldLease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.held))
}

// Close releases all leases.
func (l *Leases) Close() {
	for _, held := range l.list() {
		l.release(held)
	}
}
