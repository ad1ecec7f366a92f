package exec

import "github.com/gpurun/gpurun/plugins"

// HasExited reports whether an exec kernel knows that its program has exited.
func HasExited(k plugins.Kernel) bool { return k.(*kernel).running.process.Exited() }
