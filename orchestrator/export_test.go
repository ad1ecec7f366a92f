package orchestrator

import "github.com/gpurun/gpurun/gpu"

// WithDevices gives a job another machine's devices.
func WithDevices(c Config, options gpu.Options) Config {
	c.devices = options
	return c
}
