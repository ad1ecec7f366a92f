package worker

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/gpurun/gpurun/internal/profile"
	"github.com/gpurun/gpurun/internal/template"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// Init must be the first call in main of a program that runs jobs: the gpurun command, or a
// program that embeds package orchestrator. Workers and built-in kernels are the same
// program, started again; in those processes Init does their work and never returns. In the
// process that the user started it returns at once.
//
// kernels are the kernels that jobs may name: builtin.Kernels() and the program's own.
//
//	func main() {
//		worker.Init(builtin.Kernels())
//		…
//	}
func Init(kernels map[string]func() plugins.Kernel) {
	wire.InitCalled()
	if len(os.Args) < 2 {
		return
	}
	switch os.Args[1] {
	case wire.GuardArgument:
		if len(os.Args) < 4 {
			os.Exit(2)
		}
		os.Exit(guard(os.Args[2], os.Args[3]))
	case wire.WorkerArgument:
		debug.SetGCPercent(gcPercent)
		stop := profile.Start("worker")
		code := run(kernels)
		stop()
		os.Exit(code)
	case wire.TemplatesArgument:
		if len(os.Args) > 2 {
			os.Exit(template.ServeWarm())
		}
		os.Exit(template.Serve())
	case wire.KernelArgument:
		if len(os.Args) < 3 || kernels[os.Args[2]] == nil {
			fmt.Fprintf(os.Stderr, "%s: no such built-in kernel: %q\n", os.Args[0], os.Args[2:])
			os.Exit(2)
		}
		stop := profile.Start("kernel")
		plugins.Serve(kernels[os.Args[2]]())
		stop()
		os.Exit(0)
	}
}

// gcPercent lets a worker's heap, a few MB, grow further between collections. At Go's
// default a worker spends a tenth of its time on garbage collection.
const gcPercent = 400
