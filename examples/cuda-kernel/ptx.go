package main

import (
	_ "embed"
	"errors"
	"fmt"

	"github.com/gpurun/gpurun/examples/cuda-kernel/cuda"
)

// ptx is kernel.cu as nvcc compiled it, in NVIDIA's portable assembly, which the
// driver compiles for the card. It begins with a comment that says of which source
// it is; TestPTXBelongsToSource looks at it.
//
//go:embed kernel.ptx
var ptx []byte

// explain adds to an error of loading ptx what can be done about it.
func explain(err error, device string) error {
	var failed *cuda.Error
	if !errors.As(err, &failed) {
		return err
	}
	switch failed.Code {
	case cuda.UnsupportedPTXVersion:
		return fmt.Errorf("the NVIDIA driver is too old for kernel.ptx: update it, or make kernel.ptx again with an older CUDA (make ptx): %w", err)
	case cuda.NoBinaryForGPU, cuda.InvalidPTX:
		return fmt.Errorf("kernel.ptx cannot be compiled for %s: it needs compute capability 7.5 or higher: %w", device, err)
	}
	return err
}
