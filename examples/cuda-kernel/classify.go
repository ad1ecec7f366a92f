package main

import (
	"errors"

	"github.com/gpurun/gpurun/examples/cuda-kernel/cuda"
	"github.com/gpurun/gpurun/plugins"
)

// classify wraps a CUDA error so that gpurun knows how to handle it: after an
// out-of-memory error a smaller batch may fit, and after losing the device others must do
// the work. gpurun handles the rest, because it recognizes the names: after
// CUDA_ERROR_ILLEGAL_ADDRESS and similar errors, which make the context unusable, it
// restarts the process.
func classify(err error) error {
	var failed *cuda.Error
	if !errors.As(err, &failed) {
		return err
	}
	switch failed.Code {
	case cuda.OutOfMemory:
		return plugins.OutOfMemory(err)
	case cuda.NoDevice, cuda.InvalidDevice, cuda.DeviceUnavailable, cuda.ECCUncorrectable, cuda.NVLinkUncorrectable, cuda.SystemNotReady:
		return plugins.DeviceLost(err)
	}
	return err
}
