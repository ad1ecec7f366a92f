package spec

import (
	"context"

	"github.com/gpurun/gpurun/gpu"
)

// ClaimRequest is what a job asks of Config.Devices.Claim.
type ClaimRequest struct {
	// Devices are the devices the job may use, in selection order; at least one.
	Devices []gpu.Device
	// Named means that the user named the devices instead of taking all available ones.
	Named bool
	// Most is how many devices the job has work for, a multiple of GPUsPerWorker. A job
	// of one chunk must not keep eight GPUs from others.
	Most int
	// PerWorker is Config.Devices.GPUsPerWorker.
	PerWorker int
	// Preview asks what the job would get, without taking devices or waiting.
	Preview bool
	// Notice shows the user a line, for example which job it is waiting for. Alarm shows one
	// that even a quiet display must not hide.
	Notice, Alarm func(string)
}

// Claim holds the devices that a job may use of those it selected, when several jobs
// share a machine. Config.Devices.Claim creates it.
type Claim struct {
	// Devices are the ones that the job has to itself or shares.
	Devices []gpu.Device
	// Notes are lines for the user.
	Notes []string
	// Memory is how many bytes of each device the job holds; 0 for all of it. More acquires
	// further bytes of a device before gpurun adds a worker that would exceed them; nil
	// means that there are none.
	Memory uint64
	More   func(ctx context.Context, device gpu.Device, bytes uint64) error
	// Keep returns all devices but these, since a small input needs fewer. Release
	// returns all of them. Neither may be nil.
	Keep    func([]gpu.Device)
	Release func()
}
