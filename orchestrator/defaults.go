package orchestrator

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/resources"
	"github.com/gpurun/gpurun/internal/wire"
)

// withDefaults fills in defaults and rejects invalid values.
func (c Config) withDefaults() (Config, error) {
	if err := c.check(); err != nil {
		return c, err
	}
	setDefault(&c.Devices.GPUs, "all")
	setDefault(&c.Devices.GPUsPerWorker, 1)
	setDefault(&c.Devices.WorkersPerGPU, AutoWorkers)
	setDefault(&c.Batching.Bytes, DefaultBatchBytes)
	setDefault(&c.Batching.ChunksPerGPU, DefaultChunksPerGPU)
	setDefault(&c.Input.MaxRecordBytes, DefaultMaxRecordBytes)
	if c.Failures.Timeout == 0 {
		c.Failures.Timeout = DefaultTimeout
		setDefault(&c.leastTimeout, leastTimeout)
	}
	setDefault(&c.Failures.OpenTimeout, DefaultOpenTimeout)
	setDefault(&c.Failures.Retries, DefaultRetries)
	setDefault(&c.Input.Flush, DefaultFlush)
	setDefault(&c.Resume.Checkpoint, DefaultCheckpoint)
	setDefault(&c.Resume.DrainTimeout, DefaultDrainTimeout)
	setDefault(&c.Output.PartBytes, commit.DefaultPartBytes)
	setDefault(&c.Display.LogLevel, "info")
	setDefault(&c.Devices.Profile, string(gpu.Datacenter))
	setDefault(&c.Devices.Monitor, gpu.DefaultConfig())
	setDefault(&c.handBack, handBackAfter)
	setDefault(&c.firstProbe, firstProbe)
	setDefault(&c.stallAfter, stallAfter)
	setDefault(&c.checkWait, outputCheckWait)
	if c.Input.Stdin == nil {
		c.Input.Stdin = os.Stdin
	}
	if c.Format == OpenAIBatch {
		c.Input.Format = "jsonl"
	}
	c, err := c.withInput()
	if err != nil {
		return c, err
	}
	c = c.withOutput()
	if format, err := c.chooseFormat(); err != nil {
		return c, err
	} else if format.Table && c.Format != "" {
		return c, c.refuseWithFormat("an output of columns", "output")
	}
	if err := c.checkTable(); err != nil {
		return c, err
	}
	if err := c.checkArrays(); err != nil {
		return c, err
	}
	if c.Dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return c, fault.New(fault.Usage, "working folder: %w", err)
		}
		c.Dir = dir
	}
	c = c.withFetch()
	if c.WorkerBinary == "" {
		if c.WorkerBinary = wire.Self(); c.WorkerBinary == "" {
			return c, fault.New(fault.Usage, "no program to start workers from: call worker.Init first in main, or name a gpurun binary in Config.WorkerBinary")
		}
	}
	return c, checkNames(c)
}

// likelyKernel returns the input that is probably meant as the kernel, or a built-in one.
func (c Config) likelyKernel() string {
	for _, name := range append([]string{c.Input.Path}, c.Input.Paths...) {
		if filepath.Ext(name) == ".py" {
			return name
		}
	}
	return "echo"
}

func (c Config) check() error {
	switch {
	case c.Input.Path == "" && len(c.Input.Paths) == 0:
		return fault.New(fault.Usage, "no input: name a file of JSON lines, or - for standard input")
	case c.Kernel.Name == "":
		kernel := c.likelyKernel()
		return fault.New(fault.Usage, "no kernel: name one, for example %s", kernel).WithCode(fault.NoKernel, kernel)
	case len(c.Kernel.Config) > 0 && !json.Valid(c.Kernel.Config):
		return fault.New(fault.Usage, "the kernel configuration is not valid JSON")
	}
	if strings.HasPrefix(c.Output.SourceField, "_error") || c.streaming && c.Output.SourceField != "" {
		return fault.New(fault.Usage, "the source field cannot be %q", c.Output.SourceField).Set("source-field")
	}
	if err := c.checkLines(); err != nil {
		return err
	}
	for _, name := range c.Output.Keep {
		if strings.TrimSpace(name) == "" {
			return fault.New(fault.Usage, "a member to keep has an empty name").Set("keep")
		}
	}
	for _, what := range c.Resume.AcceptChanges {
		if !slices.Contains(acceptable, what) {
			return fault.New(fault.Usage, "change %q cannot be accepted, only %s", what, strings.Join(acceptable, ", ")).Set("accept-changes")
		}
	}
	if err := gpu.CheckProfile(c.Devices.Profile); err != nil && c.Devices.Profile != "" {
		return err
	}
	if c.Kernel.NaN != "" && c.Kernel.NaN != NaNNull && c.Kernel.NaN != NaNError {
		return fault.New(fault.Usage, "%q for NaN is neither %s nor %s", c.Kernel.NaN, NaNNull, NaNError).Set("nan")
	}
	switch c.Input.Split {
	case input.SplitAuto, input.SplitRecords, input.SplitBytes:
	default:
		return fault.New(fault.Usage, "split %q is neither records nor bytes", c.Input.Split).Set("split")
	}
	for _, one := range []struct {
		name  string
		value int64
	}{
		{"gpus-per-worker", int64(c.Devices.GPUsPerWorker)}, {"workers-per-gpu", int64(c.Devices.WorkersPerGPU)},
		{"batch-size", int64(c.Batching.Size)}, {"batch-bytes", int64(c.Batching.Bytes)}, {"batch-cost", c.Batching.Cost},
		{"chunks-per-gpu", int64(c.Batching.ChunksPerGPU)}, {"chunk-records", c.Input.ChunkRecords},
		{"max-record-bytes", c.Input.MaxRecordBytes}, {"limit", c.Input.Limit}, {"offset", c.Input.Offset},
		{"timeout", int64(c.Failures.Timeout)}, {"open-timeout", int64(c.Failures.OpenTimeout)}, {"flush", int64(c.Input.Flush)},
		{"checkpoint", int64(c.Resume.Checkpoint)}, {"max-time", int64(c.Resume.MaxTime)},
		{"max-requests", c.Resume.MaxRequests}, {"max-tokens-total", c.Resume.MaxTokens},
		{"drain-timeout", int64(c.Resume.DrainTimeout)}, {"part-bytes", c.Output.PartBytes},
		{"io-workers", int64(c.Kernel.IOWorkers)},
		{"fetch-max-bytes", c.Fetch.MaxBytes}, {"fetch-concurrency", int64(c.Fetch.Concurrency)},
		{"fetch-per-host", int64(c.Fetch.PerHost)}, {"fetch-timeout", int64(c.Fetch.Timeout)},
	} {
		if one.value < 0 && (one.name != "workers-per-gpu" || one.value != AutoWorkers) {
			return fault.New(fault.Usage, "%s must not be negative", strings.ReplaceAll(one.name, "-", " ")).Set(one.name)
		}
	}
	return c.checkFetch()
}

func setDefault[T comparable](member *T, value T) {
	var zero T
	if *member == zero {
		*member = value
	}
}

// cores returns the number of CPUs that this process may use.
func (c Config) cores() int {
	if c.devices.CPUs > 0 {
		return c.devices.CPUs
	}
	return resources.Cores()
}
