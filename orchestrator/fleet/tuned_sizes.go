package fleet

import (
	"encoding/json"
	"os"
	"sync"

	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// tunedSizes are the batch sizes that the search of each device has found, by device. They are in a
// file, so that later workers, and a resumed job, compute the same batches.
type tunedSizes struct {
	path string // "" if the job cannot be resumed

	mu    sync.Mutex
	sizes map[string]int
}

// newTunedSizes reads what an earlier run of the job has found. A missing or damaged file is empty.
func newTunedSizes(path string) *tunedSizes {
	t := &tunedSizes{path: path}
	if data, err := os.ReadFile(path); err != nil || json.Unmarshal(data, &t.sizes) != nil || t.sizes == nil {
		t.sizes = make(map[string]int)
	}
	return t
}

// found records that the search of a slot's worker has ended with a size. The first size of a
// device stays.
func (t *tunedSizes) found(slot event.Slot, size int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if size == 0 || t.sizes[slot.Key()] > 0 {
		return
	}
	t.sizes[slot.Key()] = size
	if t.path != "" {
		_ = files.WriteJSON(t.path, t.sizes, files.PrivateMode) // without it, the next run searches again
	}
}

// apply makes a worker use the size that was found for its device.
func (t *tunedSizes) apply(slot event.Slot, setup *wire.Setup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if size := t.sizes[slot.Key()]; size > 0 && setup.Records.AutoBatch {
		setup.Records.BatchSize, setup.Records.AutoBatch = size, false
	}
}
