// Package builtin lists the kernels that are built into gpurun. A program that embeds
// gpurun passes this list to worker.Init, together with its own kernels.
package builtin

import (
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/chain"
	"github.com/gpurun/gpurun/plugins/echo"
	"github.com/gpurun/gpurun/plugins/exec"
	"github.com/gpurun/gpurun/plugins/minhash"
	"github.com/gpurun/gpurun/plugins/openai"
	"github.com/gpurun/gpurun/plugins/python"
	"github.com/gpurun/gpurun/plugins/serve"
)

// Kernels returns the built-in kernels by name.
func Kernels() map[string]func() plugins.Kernel {
	return map[string]func() plugins.Kernel{
		"chain":   chain.New,
		"echo":    echo.New,
		"exec":    exec.New,
		"minhash": minhash.New,
		"openai":  openai.New,
		"python":  python.New,
		"serve":   serve.New,
	}
}
