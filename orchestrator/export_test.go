package orchestrator

import (
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/orchestrator/scaling"
	"github.com/gpurun/gpurun/orchestrator/spec"
	"github.com/gpurun/gpurun/worker/early"
)

// WithDevices gives a job another machine's devices.
func WithDevices(c Config, options gpu.Options) Config {
	c.Options.devices = options
	return c
}

// WithDurableEvery sets the interval between durable points.
func WithDurableEvery(c Config, d time.Duration) Config {
	c.Options.durableEvery = d
	return c
}

// WithUnitBytes sets the size of a unit of an encoded output.
func WithUnitBytes(c Config, bytes int64) Config {
	c.Options.unitBytes = bytes
	return c
}

// WithLeastTimeout sets the minimum timeout of a batch.
func WithLeastTimeout(c Config, d time.Duration) Config {
	c.Options.leastTimeout = d
	return c
}

// WithoutDurable skips durable points, to measure their cost.
func WithoutDurable(c Config) Config {
	c.Options.noDurable = true
	return c
}

// WithStallAfter sets when a silent first batch is reported.
func WithStallAfter(c Config, d time.Duration) Config {
	c.Options.stallAfter = d
	return c
}

// WithHandBack sets how long a paused worker keeps its chunk.
func WithHandBack(c Config, d time.Duration) Config {
	c.Options.handBack = d
	return c
}

// WithFirstProbe sets how long a lost device is left alone before it is tried again.
func WithFirstProbe(c Config, d time.Duration) Config {
	c.Options.firstProbe = d
	return c
}

// simulatedInterval is how much time passes between two steps of a simulated scaler.
const simulatedInterval = 500 * time.Millisecond

// WithScaling makes gpurun choose the number of workers, as on a machine with this
// number of cores, and makes its time run faster.
func WithScaling(c Config, cores int, speed float64) Config {
	c.Devices.WorkersPerGPU, c.Options.devices.CPUs = AutoWorkers, cores
	c.Options.scaleEvery = time.Duration(float64(simulatedInterval) / speed)
	c.Options.scaleFigures = func(f *scaling.Figures) {
		for _, d := range []*time.Duration{&f.Time, &f.Busy, &f.Load, &f.Remaining} {
			*d = time.Duration(float64(*d) * speed)
		}
		f.IdleCores = -1
	}
	return c
}

// WithFigures passes the figures of the scaler's steps.
func WithFigures(c Config, use func(*scaling.Figures)) Config {
	c.Options.scaleFigures = use
	return c
}

// WithLanes makes the scaler of a job with one device see the rates of a device that
// computes this number of batches at a time, whatever else the machine does: its time advances by
// one interval with each of its steps, and the end of the job is far away.
func WithLanes(c Config, lanes int) Config {
	var now, busy time.Duration
	var batches int64
	c.Options.scaleFigures = func(f *scaling.Figures) {
		now += simulatedInterval
		busy += time.Duration(f.Workers) * simulatedInterval
		batches += int64(80 * min(f.Workers, lanes))
		f.Time, f.Busy, f.Records, f.Bytes, f.Batches = now, busy, batches, 1000*batches, batches
		f.Load, f.Remaining, f.GPUBusy, f.IdleCores, f.HostFree, f.HostEach = simulatedInterval, time.Hour, -1, -1, 0, 0
	}
	return c
}

// WithOthers is WithLanes for workers on a CPU, of whose cores other processes use most until
// freed returns true. Then each worker has a core.
func WithOthers(c Config, freed func() bool) Config {
	var now, busy time.Duration
	var batches int64
	c.Options.scaleFigures = func(f *scaling.Figures) {
		now += simulatedInterval
		busy += time.Duration(f.Workers) * simulatedInterval
		speed, idle, wants := 1, 0.05, 4.0
		if freed() {
			speed, idle, wants = f.Workers, f.Cores-float64(f.Workers), 1
		}
		batches += int64(80 * speed)
		f.Time, f.Busy, f.Records, f.Bytes, f.Batches = now, busy, batches, 1000*batches, batches
		f.Load, f.Remaining, f.GPUBusy, f.IdleCores, f.HostFree, f.HostEach = simulatedInterval, time.Hour, -1, idle, 0, 0
		f.Runnable = wants * float64(f.Workers)
	}
	return c
}

// FolderPath returns where the job folder of a Config is.
func FolderPath(c Config) string { return spec.At(c.Output.Path).Folder(c.Resume.WorkDir) }

// WithOutputCheckBeside lets the work start before the output of an earlier run is
// checked.
func WithOutputCheckBeside(c Config) Config {
	c.Options.checkWait = -1
	return c
}

// Kept returns whether a record of an unfinished job has a result that is committed, or an
// answer that is logged.
func Kept(folder string) (kept func(number int64) bool, err error) {
	logged := early.Answered(filepath.Join(folder, commit.PartsDir), func(int64) bool { return false })
	entries, err := commit.ReadJournal(filepath.Join(folder, "journal"))
	if err != nil {
		return nil, err
	}
	state, err := commit.Replay(entries)
	return func(number int64) bool {
		_, is := logged[number]
		return is || state.Holds(number, 1)
	}, err
}
