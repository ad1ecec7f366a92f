package claim

import (
	"context"
	"slices"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
)

// Allocate leases memory of one of the devices, which the user has named if r.Named is set. The
// request has its name, its memory and how long the lease lasts; the rest follows from the rules.
// It returns the device as well.
func Allocate(ctx context.Context, rules lease.Config, devices []gpu.Device, r lease.Request) (*lease.Held, gpu.Device, error) {
	devices, _, err := Leasable(devices, r.Named)
	if err != nil {
		return nil, gpu.Device{}, err
	}
	folder, err := lease.Open("")
	if err != nil {
		return nil, gpu.Device{}, err
	}
	r.Quota, r.Limits, r.Number, r.OneOfAName = rules.QuotaOf(r.Name), rules.Limits(), 1, true
	r.Prefer = r.Quota.Prefer()
	r.GPUs = cards(devices, gpu.Options{})
	held, err := folder.Acquire(ctx, r)
	if err != nil {
		return nil, gpu.Device{}, err
	}
	key := held.Leases()[0].GPU
	return held, devices[slices.IndexFunc(devices, func(d gpu.Device) bool { return Key(d) == key })], nil
}

// CheckRequest refuses a name or an amount of memory that the rules do not allow.
func CheckRequest(rules lease.Config, name string, memory uint64) error {
	if err := lease.CheckName(name); err != nil {
		return err
	}
	return rules.QuotaOf(name).Check(name, memory)
}
