package claim

import (
	"context"
	"sync"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
)

// further is the leases that a job takes while it runs, for workers that it adds.
type further struct {
	folder  *lease.Folder
	request lease.Request // the job's first one
	mu      sync.Mutex
	held    []*lease.Held
}

// acquire leases further memory of a device, without waiting for it.
func (f *further) acquire(ctx context.Context, device gpu.Device, bytes uint64) error {
	r := f.request
	r.GPUs = func(ctx context.Context) ([]lease.GPU, error) {
		return Cards(ctx, []gpu.Device{device}, gpu.Options{})
	}
	r.Memory, r.Each, r.Number, r.AtMost, r.PerGroup, r.Wait, r.Waiting = bytes, true, 0, 0, 1, 0, nil
	held, err := f.folder.Acquire(ctx, r)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = append(f.held, held)
	return nil
}

// release releases them all.
func (f *further) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, held := range f.held {
		held.Release()
	}
	f.held = nil
}
