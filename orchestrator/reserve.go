package orchestrator

import (
	"slices"

	"github.com/gpurun/gpurun/gpu"
)

// PlannedScaling is how many workers a device starts with and how many it may get.
type PlannedScaling struct {
	Device  string `json:"device"`
	Workers int    `json:"workers"`
	Most    int    `json:"most"`
}

// auto reports whether gpurun chooses the number of workers. The user has chosen that of
// CPU devices by naming them.
func (p *prepared) auto() bool {
	return p.config.Devices.WorkersPerGPU == AutoWorkers && len(p.plan.Slots) > 0 &&
		(p.plan.Slots[0].Devices[0].Kind != gpu.CPU || p.selection.IsAll())
}

// reserveSlots keeps the slots with which the job starts and reserves the others: one for
// each GPU or, in a resumed job, as many as the last run found to be best. The input has
// been cut for all of them. CPU devices all start.
func (p *prepared) reserveSlots() {
	if !p.auto() {
		return
	}
	if p.plan.Slots[0].Devices[0].Kind == gpu.CPU {
		for i := range p.plan.Slots { // a small job or the kernel may want fewer than cores
			p.plan.Slots[i].Threads = max(1, p.config.cores()/len(p.plan.Slots))
		}
		return
	}
	most := make(map[string]int)
	for _, slot := range p.plan.Slots {
		most[slot.key()]++
	}
	p.reserve = nil
	p.plan.Slots = slices.DeleteFunc(p.plan.Slots, func(s Slot) bool {
		start := s.rank < max(1, p.resumedWorkers[s.key()].Workers)
		if !start {
			p.reserve = append(p.reserve, s)
			_ = p.registry.Release(s.key())
		}
		return !start
	})
	started := make(map[string]int)
	for _, slot := range p.plan.Slots {
		started[slot.key()]++
	}
	for i := range p.plan.Slots {
		s := &p.plan.Slots[i]
		s.Number, s.added = i, s.rank > 0
		s.Threads = max(1, p.config.cores()/(len(most)*started[s.key()]))
		if s.rank == 0 {
			p.plan.Scaling = append(p.plan.Scaling, PlannedScaling{s.key(), started[s.key()], most[s.key()]})
		}
	}
}
