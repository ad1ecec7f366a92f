// Package examples holds the source of the CUDA example, for gpurun plugin new: what
// a user begins with is what is tested here.
package examples

import "embed"

// CUDA is the folder cuda-kernel: a kernel in CUDA as a plugin in Go, which builds
// where there is no CUDA.
//
//go:embed cuda-kernel/*.go cuda-kernel/cuda/*.go cuda-kernel/kernel.cu cuda-kernel/kernel.ptx cuda-kernel/Makefile
var CUDA embed.FS
