// Package examples embeds the examples for gpurun manual and gpurun plugin new, so that
// users start from code that is tested here.
package examples

import "embed"

// CUDA is the folder cuda-kernel: a CUDA kernel with a plugin in Go that builds without
// CUDA.
//
//go:embed cuda-kernel/*.go cuda-kernel/cuda/*.go cuda-kernel/kernel.cu cuda-kernel/kernel.ptx cuda-kernel/Makefile cuda-kernel/sample.jsonl
var CUDA embed.FS

// Files are the examples that need no module of Go. Each folder has a README.md.
//
//go:embed README.md job.yaml services.yaml
//go:embed audio/README.md audio/*.py dedup/README.md dedup/*.py etl/README.md etl/*.py images/README.md images/*.py
//go:embed llm/README.md llm/*.py nightly/README.md nightly/*.sh orchestrators/README.md orchestrators/*.py
//go:embed sentence-transformers/README.md sentence-transformers/*.py
//go:embed vllm-server/README.md vllm-server/*.py
var Files embed.FS
