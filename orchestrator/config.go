package orchestrator

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// Defaults of Config's members, with their reasons in the members' comments.
const (
	DefaultBatchSize      = 128
	DefaultBatchBytes     = 32 << 20
	DefaultChunksPerGPU   = 16
	DefaultMaxRecordBytes = 16 << 20
	DefaultTimeout        = 5 * time.Minute
	DefaultOpenTimeout    = 30 * time.Minute
	DefaultRetries        = 3
	DefaultFlush          = time.Second
	DefaultCheckpoint     = 30 * time.Second
	DefaultDrainTimeout   = 20 * time.Second
)

// What becomes of NaN and infinity: Config.NaN.
const (
	NaNNull  = "null"
	NaNError = "error"
)

// leastTimeout is what a batch gets however fast the others were, unless Timeout is set.
const leastTimeout = time.Minute

// chunkBatches is how many batches a chunk of a stream holds by default.
const chunkBatches = 16

// Config is one job. Input, Output and Kernel are needed; the zero value of
// everything else is its default.
type Config struct {
	// Input is a file of JSON lines, or - for Stdin. A pipe or a device is read as
	// it comes, as - is.
	Input string
	// Stdin is read for Input "-"; nil means os.Stdin.
	Stdin io.Reader

	// Output is a file, which appears under its name when it is complete; a
	// folder, if the name ends in /, which does so with the output in parts and a
	// manifest; or - for Stdout, or a device or pipe, which are written to as
	// results come.
	Output string
	// PartBytes is how many bytes a part of a folder has at least; default 64
	// MiB. A part ends where a chunk does.
	PartBytes int64
	// Stdout is written for Output "-"; nil means os.Stdout.
	Stdout io.Writer
	// Errors is a file for the failed records; empty keeps them in their place
	// in the output.
	Errors string
	// Force replaces an output that exists.
	Force bool
	// Fresh starts over where an interrupted job could be gone on with.
	Fresh bool
	// AcceptChanges goes on with an interrupted job although these changed:
	// kernel, config.
	AcceptChanges []string
	// WorkDir is where the job folder is made; default beside the output.
	WorkDir string
	// Clean removes the job folder after success, that is if no record failed.
	Clean bool

	// Kernel is a built-in's name, exec:COMMAND, a program's path, or a name
	// found in $GPURUN_PLUGIN_PATH.
	Kernel string
	// KernelConfig is a JSON value for the kernel.
	KernelConfig []byte
	// ExecMode is how an exec: kernel runs its program: stream, batch or
	// per-record.
	ExecMode string
	// ExecID is a member of each record that an exec: kernel's program repeats in
	// its answer, so that every line is known to answer its record; empty: none.
	ExecID string
	// Python is the interpreter of kernels that are files of Python; default that
	// of the active environment, else python3.
	Python string
	// IOWorkers is the number of threads that run such a kernel's prepare; default
	// 4.
	IOWorkers int
	// NaN is what becomes of numbers that JSON does not have: null (default), or
	// error, which fails their records.
	NaN string

	// GPUs selects devices: all (default), 0,2, 0-3, GPU-…, cpu:4.
	GPUs string
	// GPUsPerWorker gives every worker so many GPUs, for a model that needs
	// them; default 1.
	GPUsPerWorker int
	// WorkersPerGPU starts so many workers on every device; default 1. AutoWorkers
	// starts as many as keep the CPUs busy and fit the device's memory.
	WorkersPerGPU int
	// Stagger lets the first worker open its kernel alone, before the others start.
	Stagger bool
	// PinUUID pins by UUID instead of index.
	PinUUID bool
	// NoAffinity lets workers run on all CPUs, not only on those near their GPU.
	NoAffinity bool

	// Profile is how fast a GPU may go in each state: datacenter (default) slows it
	// when it is close to slowing itself, workstation earlier.
	Profile string
	// Monitor is how GPUs are judged; its zero value is gpu.DefaultConfig.
	Monitor gpu.Config
	// NoMonitor lets GPUs get as hot as they like.
	NoMonitor bool

	// BatchSize is the number of records in a batch: default the kernel's wish,
	// else 128.
	BatchSize int
	// AutoBatch lets each worker find the batch size that computes the most records
	// a second, beginning with BatchSize.
	AutoBatch bool
	// BatchBytes bounds a batch; default 32 MiB. A longer record goes alone.
	BatchBytes int
	// ChunksPerGPU is the number of chunks that the input is cut into for each
	// slot; default 16, so that a fast device can take work from a slow one. 1
	// is the static split, ceil(n / slots).
	ChunksPerGPU int
	// Split is how a file is cut; default by records up to 16 GiB.
	Split chunk.Split
	// ChunkRecords is the number of records in a chunk of a stream; default 16
	// batches.
	ChunkRecords int64
	// Flush is how long a record of a stream may wait for its chunk to fill;
	// default 1s.
	Flush time.Duration
	// MaxRecordBytes is the length above which a line is a failed record;
	// default 16 MiB.
	MaxRecordBytes int64
	// Limit and Offset use only some of the records.
	Limit, Offset int64
	// Keep names the input members that stay in the output, beside the kernel's;
	// empty keeps all.
	Keep []string
	// NoValidate trusts the input to be valid JSON, one value a line. A line that is
	// not goes to the kernel as it is.
	NoValidate bool
	// Reprocess gives records that come in with an _error to the kernel too; those that
	// succeed lose it.
	Reprocess bool

	// Timeout is how long a batch may take, the first one too. By default that follows
	// from the batches that were good: 20 times the slowest, at least 1m, and at least
	// DefaultTimeout as long as few are known; a kernel's first batch may take as long
	// as opening it.
	Timeout time.Duration
	// OpenTimeout is how long a kernel may take to open, and again for its first
	// batch unless Timeout is set; default 30m, since models are large.
	OpenTimeout time.Duration
	// Retries is how often a chunk whose worker was lost is tried again before
	// its records are marked; default 3, negative for none.
	Retries int

	// Checkpoint is how long a worker computes before what it has done is
	// committed; default 30s. A kill costs at most that of each worker.
	Checkpoint time.Duration
	// DrainTimeout is how long the batches in flight may take once the job stops;
	// default 20s, since schedulers kill after 30. Those that take longer are computed
	// by the next run.
	DrainTimeout time.Duration
	// MaxTime stops the job, resumably, after so long; 0 for never.
	MaxTime time.Duration
	// Halt stops the job, resumably, when too many records failed.
	Halt Halt
	// GiveUpMark marks the records that are left when no device is, instead of
	// stopping the job resumably.
	GiveUpMark bool

	// Dir is the working folder of kernels; default the process's own.
	Dir string
	// WorkerBinary is the gpurun program that workers are started from; default
	// this program, if its main calls worker.Init.
	WorkerBinary string
	// LogLevel is that of the workers' logs: debug, info, warn, error.
	LogLevel string

	// OnEvent is told what happens, one event at a time, from the goroutines of
	// the job: it must be quick.
	OnEvent func(Event)
	// Control, if there is one, lets others pause the job and look at it.
	Control *Control
	// Claim is asked for the devices before they are used, and may wait until they
	// are free; nil uses them as if nobody else did. MakePlan asks it for a preview.
	Claim func(context.Context, ClaimRequest) (*Claim, error)
	// Abort, when closed, ends the job at once, without waiting for the batches
	// that are being computed; the end of Run's context waits for those.
	Abort <-chan struct{}

	// noDurable leaves durable points out, for the benchmark that tells what
	// they cost.
	noDurable bool
	// durableEvery is how often there are durable points, for tests that want
	// many.
	durableEvery time.Duration
	// leastTimeout is the least that a batch gets unless Timeout is set.
	leastTimeout time.Duration
	// pluginPath takes the place of $GPURUN_PLUGIN_PATH: for Retry, as it was for the job.
	pluginPath string
	// framed is for Retry, which must tell whose lines are whose.
	framed bool
	// checkWait is how long the work waits for the check of an earlier run's output,
	// default outputCheckWait; checkAll lets it wait to the end.
	checkWait time.Duration
	checkAll  bool
	// devices replaces the machine's in tests, clock the monitor's.
	devices gpu.Options
	clock   gpu.Clock
	// handBack is how long a paused worker keeps its chunk.
	handBack time.Duration
	// stallAfter is how long nothing is said of a first batch.
	stallAfter time.Duration
}

// AutoWorkers as WorkersPerGPU leaves the number to gpurun.
const AutoWorkers = -1

// Halt is when too many records have failed; the zero value is never.
type Halt struct {
	// Records is a number of failed records, 0 for none.
	Records int64
	// Percent is a share of all records, 0 for none.
	Percent float64
}

// reached reports whether the job must stop. Of a stream, whose total is not
// known, the share is that of the records so far, once they are many.
func (h Halt) reached(failed, done, total int64) bool {
	if h.Records > 0 && failed >= h.Records {
		return true
	}
	if total < 0 {
		total = max(done, 1000)
	}
	return h.Percent > 0 && total > 0 && 100*float64(failed) > h.Percent*float64(total)
}

// withDefaults fills in what was left out and refuses what makes no sense.
func (c Config) withDefaults() (Config, error) {
	if err := c.check(); err != nil {
		return c, err
	}
	setDefault(&c.GPUs, "all")
	setDefault(&c.GPUsPerWorker, 1)
	setDefault(&c.WorkersPerGPU, 1)
	setDefault(&c.BatchBytes, DefaultBatchBytes)
	setDefault(&c.ChunksPerGPU, DefaultChunksPerGPU)
	setDefault(&c.MaxRecordBytes, DefaultMaxRecordBytes)
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
		setDefault(&c.leastTimeout, leastTimeout)
	}
	setDefault(&c.OpenTimeout, DefaultOpenTimeout)
	setDefault(&c.Retries, DefaultRetries)
	setDefault(&c.Flush, DefaultFlush)
	setDefault(&c.Checkpoint, DefaultCheckpoint)
	setDefault(&c.DrainTimeout, DefaultDrainTimeout)
	setDefault(&c.PartBytes, chunk.DefaultPartBytes)
	setDefault(&c.LogLevel, "info")
	setDefault(&c.Profile, string(gpu.Datacenter))
	setDefault(&c.Monitor, gpu.DefaultConfig())
	setDefault(&c.handBack, handBackAfter)
	setDefault(&c.stallAfter, stallAfter)
	setDefault(&c.checkWait, outputCheckWait)
	if c.Stdin == nil {
		c.Stdin = os.Stdin
	}
	c = c.withInput().withOutput()
	if c.Dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return c, fault.New(fault.Usage, "working folder: %w", err)
		}
		c.Dir = dir
	}
	if c.WorkerBinary == "" {
		if c.WorkerBinary = wire.Self(); c.WorkerBinary == "" {
			return c, fault.New(fault.Usage, "no program to start workers from: call worker.Init first in main, or name a gpurun binary in Config.WorkerBinary")
		}
	}
	return c, checkNames(c)
}

func (c Config) check() error {
	switch {
	case c.Input == "":
		return fault.New(fault.Usage, "no input: name a file of JSON lines, or - for standard input")
	case c.Kernel == "":
		return fault.New(fault.Usage, "no kernel: name one with -k, for example -k echo")
	case len(c.KernelConfig) > 0 && !json.Valid(c.KernelConfig):
		return fault.New(fault.Usage, "the kernel configuration is no valid JSON")
	case len(c.Keep) > 64:
		return fault.New(fault.Usage, "--keep takes at most 64 names")
	}
	for _, name := range c.Keep {
		if strings.TrimSpace(name) == "" {
			return fault.New(fault.Usage, "--keep has an empty name")
		}
	}
	for _, what := range c.AcceptChanges {
		if !slices.Contains(acceptable, what) {
			return fault.New(fault.Usage, "--accept-changes %q is none of %s", what, strings.Join(acceptable, ", "))
		}
	}
	if err := gpu.CheckProfile(c.Profile); err != nil && c.Profile != "" {
		return err
	}
	if c.NaN != "" && c.NaN != NaNNull && c.NaN != NaNError {
		return fault.New(fault.Usage, "--nan %q is neither %s nor %s", c.NaN, NaNNull, NaNError)
	}
	switch c.Split {
	case chunk.SplitAuto, chunk.SplitRecords, chunk.SplitBytes:
	default:
		return fault.New(fault.Usage, "--split %q is neither records nor bytes", c.Split)
	}
	for _, one := range []struct {
		flag  string
		value int64
	}{
		{"--gpus-per-worker", int64(c.GPUsPerWorker)}, {"--workers-per-gpu", int64(c.WorkersPerGPU)},
		{"--batch-size", int64(c.BatchSize)}, {"--batch-bytes", int64(c.BatchBytes)},
		{"--chunks-per-gpu", int64(c.ChunksPerGPU)}, {"--chunk-records", c.ChunkRecords},
		{"--max-record-bytes", c.MaxRecordBytes}, {"--limit", c.Limit}, {"--offset", c.Offset},
		{"--timeout", int64(c.Timeout)}, {"--open-timeout", int64(c.OpenTimeout)}, {"--flush", int64(c.Flush)},
		{"--checkpoint", int64(c.Checkpoint)}, {"--max-time", int64(c.MaxTime)},
		{"--drain-timeout", int64(c.DrainTimeout)}, {"--part-bytes", c.PartBytes},
		{"--io-workers", int64(c.IOWorkers)},
	} {
		if one.value < 0 && (one.flag != "--workers-per-gpu" || one.value != AutoWorkers) {
			return fault.New(fault.Usage, "%s must not be negative", one.flag)
		}
	}
	return nil
}

func setDefault[T comparable](member *T, value T) {
	var zero T
	if *member == zero {
		*member = value
	}
}

// cores is the number of CPUs that this process may use.
func cores() int { return runtime.NumCPU() }
