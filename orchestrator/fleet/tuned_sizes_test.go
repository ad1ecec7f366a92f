package fleet

import (
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// TestTunedSizesOutliveTheRun: a resumed job uses the batch size that the last run has found for
// a device, and searches on others.
func TestTunedSizesOutliveTheRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "batch-sizes.json")
	one, two := event.Slot{Devices: []gpu.Device{{Kind: gpu.GPU, Index: 0}}}, event.Slot{Devices: []gpu.Device{{Kind: gpu.GPU, Index: 1}}}
	first := newTunedSizes(path)
	first.found(one, 0)
	first.found(one, 512)
	first.found(one, 256) // of another worker on the same device
	for _, sizes := range []*tunedSizes{first, newTunedSizes(path)} {
		for slot, want := range map[*event.Slot]wire.Records{
			&one: {BatchSize: 512}, &two: {BatchSize: 128, AutoBatch: true},
		} {
			setup := wire.Setup{Records: wire.Records{BatchSize: 128, AutoBatch: true}}
			if sizes.apply(*slot, &setup); setup.Records.BatchSize != want.BatchSize || setup.Records.AutoBatch != want.AutoBatch {
				t.Errorf("%s: batches of %d, searching %t", slot.Key(), setup.Records.BatchSize, setup.Records.AutoBatch)
			}
		}
	}
}
