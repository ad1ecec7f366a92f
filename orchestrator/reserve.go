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
func (s *staff) auto() bool {
	return s.config.Devices.WorkersPerGPU == AutoWorkers && len(s.plan.Slots) > 0 &&
		(s.plan.Slots[0].Devices[0].Kind != gpu.CPU || s.selection.IsAll())
}

// reserveSlots keeps the slots with which the job starts and reserves the others: one for
// each GPU or, in a resumed job, as many as the last run found to be best. The input has
// been cut for all of them. CPU devices all start.
func (s *staff) reserveSlots() {
	if !s.auto() {
		return
	}
	if s.plan.Slots[0].Devices[0].Kind == gpu.CPU {
		for i := range s.plan.Slots { // a small job or the kernel may want fewer than cores
			s.plan.Slots[i].Threads = max(1, s.config.cores()/len(s.plan.Slots))
		}
		return
	}
	most := make(map[string]int)
	for _, slot := range s.plan.Slots {
		most[slot.Key()]++
	}
	s.reserve = nil
	s.plan.Slots = slices.DeleteFunc(s.plan.Slots, func(slot Slot) bool {
		start := slot.Rank < max(1, s.resumed[slot.Key()].Workers)
		if !start {
			s.reserve = append(s.reserve, slot)
			s.registry.Release(slot.Key())
		}
		return !start
	})
	started := make(map[string]int)
	for _, slot := range s.plan.Slots {
		started[slot.Key()]++
	}
	for i := range s.plan.Slots {
		slot := &s.plan.Slots[i]
		key := slot.Key()
		slot.Number, slot.Added = i, slot.Rank > 0
		slot.Threads = max(1, s.config.cores()/(len(most)*started[key]))
		if slot.Rank == 0 {
			s.plan.Scaling = append(s.plan.Scaling, PlannedScaling{key, started[key], most[key]})
		}
	}
}
