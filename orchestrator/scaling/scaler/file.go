package scaler

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/scaling"
)

// Options are how a fleet may change its number of workers.
type Options struct {
	Slots   []event.Slot     // that the job starts with; none if their number is fixed
	Reserve []event.Slot     // that may be added, in order
	Resumed map[string]Saved // what an earlier run has saved
	File    string           // where this one does; "" for nowhere
	Cores   int              // that all workers share
	Emit    func(event.Event)
	Own     func(pid int) bool // whether a process works for the job
	// Memory is how many bytes of each device the job holds; 0 for all of it. More acquires
	// further ones; nil means that there are none. Usable returns how much of a device's memory
	// all workers may use together; MinMemory is what one needs.
	Memory    uint64
	More      func(ctx context.Context, device gpu.Device, bytes uint64) error
	Usable    func(total uint64) uint64
	MinMemory uint64
	// Every replaces interval, and Simulate what was measured; 0 and nil unless for tests.
	Every    time.Duration
	Simulate func(*scaling.Figures)
}

// Saved is the last good number of workers of a device.
type Saved struct {
	Workers int  `json:"workers"`
	Settled bool `json:"settled"`
}

// save writes the numbers to the job folder if they have changed. They only save time: a
// file that cannot be written is no reason to stop.
func (s *Scaler) save() {
	all := make(map[string]Saved, len(s.groups))
	changed := false
	for _, g := range s.groups {
		workers, settled := g.search.Good()
		all[g.name] = Saved{workers, settled}
		changed = changed || all[g.name] != s.saved[g.name]
	}
	if !changed || s.File == "" {
		return
	}
	s.saved = all
	_ = files.WriteJSON(s.File, all, files.PrivateMode)
}

// ReadSaved reads what an earlier run of the job has saved; a missing or damaged file is
// empty.
func ReadSaved(path string) (all map[string]Saved) {
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, &all) != nil {
		return nil
	}
	return all
}
