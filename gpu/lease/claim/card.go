package claim

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/fault"
)

// Card returns a device as leases see it, without the memory that the driver reserves. Its
// key is empty if the device cannot be identified; see Leasable.
func Card(d gpu.Device, used, reserved uint64) lease.GPU {
	card := lease.GPU{Key: d.UUID, Index: d.Index, Label: d.String(), Total: d.Memory - min(d.Memory, reserved), Used: used}
	if d.Ambiguous != "" {
		card.Key = ""
	}
	if d.Parent != nil {
		card.Index = d.Parent.Index
	}
	return card
}

// Key identifies a device in leases; "" if it cannot be leased.
func Key(d gpu.Device) string { return Card(d, 0, 0).Key }

// Cards returns the current memory of the devices. A device that does not respond keeps
// the figures of the inventory.
func Cards(ctx context.Context, devices []gpu.Device, options gpu.Options) ([]lease.GPU, error) {
	cards := make([]lease.GPU, len(devices))
	for i, memory := range gpu.MemoryOf(ctx, devices, options) {
		d := devices[i]
		cards[i] = Card(d, d.Memory-min(d.Memory, d.MemoryFree), 0)
		if m, known := memory.Get(); known {
			d.Memory = m.Total
			cards[i] = Card(d, m.Used, m.Reserved)
		}
	}
	return cards, ctx.Err()
}

// ErrNotLeasable is in the chain of the errors of Leasable.
var ErrNotLeasable = errors.New("cannot be leased")

// Leasable returns the devices that can be leased, and a note about each of the others. It rejects
// devices that other processes may know by another name, because leasing one would not exclude them.
// If the user has named the devices, or none can be leased, the error is a fault.NoDevice that says
// what to set.
func Leasable(devices []gpu.Device, named bool) (leasable []gpu.Device, notes []string, err error) {
	for _, d := range devices {
		why := unleasable(d)
		if why == "" {
			leasable = append(leasable, d)
			continue
		}
		notes = append(notes, fmt.Sprintf("skipping %s: it %s: %s", d, ErrNotLeasable, why))
		if err == nil {
			err = fault.GPUsHeld.Wrap(fmt.Errorf("%s %w: %s", d, ErrNotLeasable, why))
		}
	}
	if named || len(leasable) == 0 {
		return leasable, nil, err
	}
	return leasable, notes, nil
}

// unleasable returns why a device cannot be leased; empty if it can.
func unleasable(d gpu.Device) string {
	if d.Ambiguous == "" && d.UUID == "" {
		return "the driver does not report its UUID"
	}
	return d.Ambiguous
}
