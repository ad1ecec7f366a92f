// Package host takes an overview of this host: its GPUs, who leases and uses them, the
// running jobs, and advice about all of them.
package host

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/gpu/lease/claim"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/template"
	"github.com/gpurun/gpurun/internal/view"
)

// Overview is a snapshot of a host, as written by `gpurun status --json` and `gpurun gpus
// export`.
type Overview struct {
	Time          time.Time     `json:"time"`
	Host          string        `json:"host"`
	DriverVersion string        `json:"driver_version,omitempty"`
	GPUs          []GPU         `json:"gpus"`
	Leases        []lease.Lease `json:"leases"`
	Jobs          []jobs.State  `json:"jobs"`
	// Warm are the interpreters that --keep-warm has kept.
	Warm []template.Warm `json:"warm"`
	// Notes report problems, such as a missing driver or unusable leases.
	Notes []string `json:"notes"`
}

// GPU is one GPU, its lease holders and its users.
type GPU struct {
	gpu.Glance
	// Account is how much of its memory is leased, used without a lease, and free.
	// Memory used by jobs and lease holders does not affect State.
	Account lease.Account `json:"account"`
	// Slots counts this user's workers on it, Active those that are computing.
	Slots  int `json:"slots"`
	Active int `json:"active"`
	// Strangers are processes that use it and belong to no running job or lease, as far
	// as is visible from here.
	Strangers []gpu.Process `json:"strangers"`
}

// Look takes an overview of the GPUs, the leases in folder (nil: none) and this user's
// jobs. A failure becomes a note, so that the rest is still shown.
func Look(ctx context.Context, gpus *gpu.Observer, folder *lease.Folder, limits lease.Limits) Overview {
	host, _ := os.Hostname()
	o := Overview{Time: time.Now(), Host: host, GPUs: []GPU{}, Leases: []lease.Lease{}, Notes: []string{}}
	if folder != nil {
		leases, err := folder.List()
		if err != nil {
			o.Notes = append(o.Notes, err.Error())
		}
		o.Leases = append(o.Leases, leases...)
	}
	warm, _ := template.ListWarm(false) // without the folder there are none
	o.Warm = append([]template.Warm{}, warm...)
	var asked sync.WaitGroup
	asked.Go(func() { o.Jobs = jobs.States(ctx, jobs.List()) }) // a driver may be slow
	living := sync.OnceValue(func() map[int]bool {
		asked.Wait()
		return o.livingProcesses()
	})
	sight, err := gpus.Look(ctx, func(d gpu.Device, s gpu.Sample) uint64 {
		memory, _ := s.Memory.Get()
		cards := []lease.GPU{claim.Card(d, memory.Used, memory.Reserved)}
		ours := uint64(0)
		for _, p := range s.Processes.Or(nil) {
			if belongs(p.PID, living()) {
				ours += p.Memory.Or(0)
			}
		}
		return max(ours, lease.Count(cards, o.Leases, limits)[0].Leased)
	})
	asked.Wait()
	if err != nil {
		o.Notes = append(o.Notes, err.Error())
	}
	if sight.Note != "" {
		o.Notes = append(o.Notes, sight.Note)
	}
	o.DriverVersion = sight.DriverVersion
	for _, glance := range sight.GPUs {
		g := GPU{Glance: glance, Strangers: []gpu.Process{}}
		for _, job := range o.Jobs {
			for _, w := range job.Workers {
				g.addWorker(w)
			}
		}
		for _, p := range g.Sample.Processes.Or(nil) {
			if !belongs(p.PID, living()) {
				g.Strangers = append(g.Strangers, p)
			}
		}
		o.GPUs = append(o.GPUs, g)
	}
	o.count(limits)
	return o
}

// WithLeases returns the overview with the current leases of a folder.
func (o Overview) WithLeases(folder *lease.Folder, limits lease.Limits) Overview {
	if leases, err := folder.List(); err == nil {
		o.Leases = append([]lease.Lease{}, leases...)
		o.GPUs = slices.Clone(o.GPUs)
		o.count(limits)
	}
	return o
}

// count sets the accounts of the GPUs.
func (o *Overview) count(limits lease.Limits) {
	cards := make([]lease.GPU, len(o.GPUs))
	for i, g := range o.GPUs {
		cards[i] = claim.Card(g.Device, g.MemoryUsed, g.MemoryReserved)
		if g.Lost != "" { // nothing to lease
			cards[i].Total, cards[i].Used = 0, 0
		}
	}
	for i, account := range lease.Count(cards, o.Leases, limits) {
		o.GPUs[i].Account = account
	}
}

func (g *GPU) addWorker(w view.Worker) {
	if !slices.Contains(w.GPUs, g.UUID) {
		return
	}
	g.Slots++
	if w.Phase.HasRecords() {
		g.Active++
	}
}

// livingProcesses returns the processes that run jobs and hold leases.
func (o *Overview) livingProcesses() map[int]bool {
	living := make(map[int]bool)
	for _, l := range o.Leases {
		if l.Host == o.Host || len(l.Holders) > 0 {
			for _, pid := range l.Processes() {
				living[pid] = true
			}
		}
	}
	for _, job := range o.Jobs {
		living[job.Job.PID] = true
	}
	return living
}

// belongs reports whether a process or one of its ancestors is in living. A process that
// is not visible from here does not belong.
func belongs(pid int, living map[int]bool) bool {
	if living[pid] {
		return true
	}
	for _, above := range proc.Ancestors(pid) {
		if living[above] {
			return true
		}
	}
	return false
}
