// Package examples embeds the source of the CUDA example for gpurun plugin new, so that
// users start from the code that is tested here.
package examples

import "embed"

// CUDA is the folder cuda-kernel: a CUDA kernel with a plugin in Go that builds without
// CUDA.
//
//go:embed cuda-kernel/*.go cuda-kernel/cuda/*.go cuda-kernel/kernel.cu cuda-kernel/kernel.ptx cuda-kernel/Makefile cuda-kernel/sample.jsonl
var CUDA embed.FS
