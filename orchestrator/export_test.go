package orchestrator

import (
	"time"

	"github.com/gpurun/gpurun/gpu"
)

// WithDevices gives a job another machine's devices.
func WithDevices(c Config, options gpu.Options) Config {
	c.devices = options
	return c
}

// WithDurableEvery makes a durable point so often.
func WithDurableEvery(c Config, d time.Duration) Config {
	c.durableEvery = d
	return c
}

// WithLeastTimeout gives batches so long at least.
func WithLeastTimeout(c Config, d time.Duration) Config {
	c.leastTimeout = d
	return c
}

// WithoutDurable leaves durable points out, to measure what they cost.
func WithoutDurable(c Config) Config {
	c.noDurable = true
	return c
}

// WithStallAfter tells of a first batch that takes so long.
func WithStallAfter(c Config, d time.Duration) Config {
	c.stallAfter = d
	return c
}

// WithHandBack lets a paused worker keep its chunk for so long.
func WithHandBack(c Config, d time.Duration) Config {
	c.handBack = d
	return c
}

// FolderPath is where the job folder of a Config is.
func FolderPath(c Config) string {
	path, err := folderPath(c)
	if err != nil {
		panic(err)
	}
	return path
}

// WithOutputCheckBeside lets the work start before the output of an earlier run is
// checked.
func WithOutputCheckBeside(c Config) Config {
	c.checkWait = -1
	return c
}
