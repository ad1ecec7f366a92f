package main

import (
	"errors"

	"github.com/gpurun/gpurun/examples/cuda-kernel/cuda"
	"github.com/gpurun/gpurun/plugins"
)

// classify says of an error of CUDA's what gpurun should do about it: with less
// memory a smaller batch may fit, and without the device others must do the work.
// The rest is left to gpurun, which knows the names: after CUDA_ERROR_ILLEGAL_ADDRESS
// and its like, which leave a context of no use, it starts the process again.
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
