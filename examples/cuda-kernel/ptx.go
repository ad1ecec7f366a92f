package main

import (
	_ "embed"
	"errors"
	"fmt"

	"github.com/gpurun/gpurun/examples/cuda-kernel/cuda"
)

// ptx is kernel.cu compiled by nvcc to NVIDIA's portable assembly, which the driver
// compiles for the card. Its first line records the checksum of the source;
// TestPTXBelongsToSource checks it.
//
//go:embed kernel.ptx
var ptx []byte

// explain adds to an error from loading ptx what the user can do about it.
func explain(err error, device string) error {
	var failed *cuda.Error
	if !errors.As(err, &failed) {
		return err
	}
	switch failed.Code {
	case cuda.UnsupportedPTXVersion:
		return fmt.Errorf("the NVIDIA driver is too old for kernel.ptx: update the driver, or rebuild kernel.ptx with an older CUDA toolkit (make ptx): %w", err)
	case cuda.NoBinaryForGPU, cuda.InvalidPTX:
		return fmt.Errorf("kernel.ptx cannot be compiled for %s: it needs compute capability 7.5 or higher: %w", device, err)
	}
	return err
}
