// Command cuda-kernel is a gpurun kernel in CUDA: MinHash signatures of a text, the
// same numbers as the built-in kernel minhash computes, on the GPU. Where there is no
// GPU it says so and computes them on the CPU.
//
//	make -C examples/cuda-kernel
//	gpurun run -k examples/cuda-kernel/minhash-cuda in.jsonl -o out.jsonl
//
// README.md explains it piece by piece, for people who bring CUDA code of their own.
package main

import "github.com/gpurun/gpurun/plugins"

func main() { plugins.Serve(&kernel{}) }
