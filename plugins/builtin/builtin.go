// Package builtin lists the kernels that the gpurun binary carries. A program
// that embeds gpurun gives the list, with kernels of its own beside it, to
// worker.Init.
package builtin

import (
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/chain"
	"github.com/gpurun/gpurun/plugins/echo"
	"github.com/gpurun/gpurun/plugins/exec"
	"github.com/gpurun/gpurun/plugins/minhash"
	"github.com/gpurun/gpurun/plugins/python"
)

// Kernels returns the built-in kernels by name.
func Kernels() map[string]func() plugins.Kernel {
	return map[string]func() plugins.Kernel{
		"chain":   chain.New,
		"echo":    echo.New,
		"exec":    exec.New,
		"minhash": minhash.New,
		"python":  python.New,
	}
}
