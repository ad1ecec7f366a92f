// Command cuda-kernel is a gpurun kernel in CUDA. It computes MinHash signatures of a text
// on the GPU, the same numbers as the built-in kernel minhash. Without a GPU it logs that
// and computes them on the CPU.
//
//	make -C examples/cuda-kernel
//	gpurun run -k examples/cuda-kernel/minhash-cuda in.jsonl -o out.jsonl
//
// README.md explains it step by step, for authors who bring their own CUDA code.
package main

import "github.com/gpurun/gpurun/plugins"

func main() { plugins.Serve(&kernel{}) }
