package orchestrator

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/resources"
	"github.com/gpurun/gpurun/internal/wire"
)

// Defaults of Config's fields; the fields' comments give the reasons.
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

// Values of Config.NaN: what happens to NaN and infinity.
const (
	NaNNull  = "null"
	NaNError = "error"
)

// leastTimeout is the minimum a batch gets, however fast the others were, unless
// Timeout is set.
const leastTimeout = time.Minute

// chunkBatches is how many batches a chunk of a stream holds by default.
const chunkBatches = 16

// Config describes one job. Input, Output and Kernel are required; the zero value of
// every other field selects its default.
type Config struct {
	// Input is a file of JSON lines, or - for Stdin. A pipe or device is streamed,
	// like -.
	Input string
	// Stdin is read for Input "-"; nil means os.Stdin.
	Stdin io.Reader

	// Output is a file, or a folder of parts with a manifest if the name ends in /.
	// Either appears under its name when it is complete. Standard output (-), a device
	// and a pipe are written as results arrive.
	Output string
	// PartBytes is the minimum size of a part in an output folder; default 64 MiB. A
	// part ends where a chunk ends.
	PartBytes int64
	// Stdout is written for Output "-"; nil means os.Stdout.
	Stdout io.Writer
	// Errors is a file for the failed records; if empty, they stay in their place in
	// the output.
	Errors string
	// Force replaces an existing output.
	Force bool
	// Fresh starts over instead of resuming an interrupted job.
	Fresh bool
	// AcceptChanges resumes an interrupted job although these changed: kernel, config.
	AcceptChanges []string
	// WorkDir is where the job folder is created; default next to the output.
	WorkDir string
	// Clean removes the job folder after a job in which no record failed.
	Clean bool

	// Kernel is the name of a built-in kernel, exec:COMMAND, the path of a program, or
	// a name found in $GPURUN_PLUGIN_PATH.
	Kernel string
	// KernelConfig is a JSON value passed to the kernel.
	KernelConfig []byte
	// ExecMode is how an exec: kernel runs its program: stream, batch or per-record.
	ExecMode string
	// ExecID names a field of each record that an exec: kernel's program repeats in its
	// response, so that every line is matched with its record; empty disables this.
	ExecID string
	// Python is the interpreter for Python kernels; default that of the active
	// environment, else python3.
	Python string
	// IOWorkers is the most threads that run a Python kernel's prepare function,
	// default 4; or the most processes in each worker if it defines setup_prepare,
	// default the worker's share of the cores.
	IOWorkers int
	// NaN is what happens to numbers that JSON cannot represent: null (default) writes
	// null; error fails the record.
	NaN string

	// GPUs selects devices: all (default), 0,2, 0-3, GPU-…, cpu:4.
	GPUs string
	// GPUsPerWorker is the number of GPUs each worker gets, for models that span
	// several; default 1.
	GPUsPerWorker int
	// WorkersPerGPU is the number of workers on each device; default 1. AutoWorkers
	// starts as many as keep the CPUs busy and fit in the device's memory.
	WorkersPerGPU int
	// Stagger lets the first worker open its kernel alone before the others start.
	Stagger bool
	// PinUUID pins devices by UUID instead of index.
	PinUUID bool
	// NoAffinity lets workers run on all CPUs, not only on those near their GPU.
	NoAffinity bool

	// Profile sets how early a hot GPU is throttled: datacenter (default) acts just
	// before the GPU would throttle itself, workstation acts earlier.
	Profile string
	// Monitor sets the thresholds for GPU health; the zero value means
	// gpu.DefaultConfig.
	Monitor gpu.Config
	// NoMonitor disables monitoring: GPUs are not throttled however hot they get.
	NoMonitor bool

	// BatchSize is the number of records in a batch; default what the kernel asks for,
	// else 128.
	BatchSize int
	// AutoBatch lets each worker search for the batch size with the highest throughput,
	// starting at BatchSize.
	AutoBatch bool
	// BatchBytes limits the size of a batch; default 32 MiB. A longer record forms its
	// own batch.
	BatchBytes int
	// GroupBy is a member of a record. Batches then hold records of similar size: by the
	// length of a text or array, or by the value of a number; a record without the member
	// has size 0. Default what the kernel asks for, else batches in input order; NoGrouping
	// for the latter. The output is in input order either way.
	GroupBy string
	// BatchCost limits the size of the grouped records of a batch, padding included: the
	// largest times their number. 0 for no limit. A larger record forms its own batch.
	BatchCost int64
	// ChunksPerGPU is the number of chunks per slot that the input is cut into; default
	// 16, so that fast devices can take work from slow ones. 1 is the static split,
	// ceil(n / slots).
	ChunksPerGPU int
	// Split is how a file is cut; default by records up to 16 GiB, by bytes above.
	Split input.Split
	// ChunkRecords is the number of records in a chunk of a stream; default 16 batches.
	ChunkRecords int64
	// Flush is how long a record of a stream may wait for its chunk to fill; default
	// 1s.
	Flush time.Duration
	// MaxRecordBytes is the length above which a line counts as a failed record;
	// default 16 MiB.
	MaxRecordBytes int64
	// Offset skips the first records; Limit caps how many are processed.
	Limit, Offset int64
	// Keep names the input fields to keep in the output next to the kernel's; empty
	// keeps all.
	Keep []string
	// NoValidate trusts the input to be valid JSON, one value per line. An invalid line
	// goes to the kernel as it is.
	NoValidate bool
	// Reprocess also passes records that come in with an _error to the kernel; the
	// _error is removed from those that succeed.
	Reprocess bool

	// Timeout is how long a batch may take, including the first. By default it is
	// derived from the successful batches: 20 times the slowest, at least 1m, and at
	// least DefaultTimeout while few have been measured. A kernel's first batch may
	// then take as long as opening it.
	Timeout time.Duration
	// OpenTimeout is how long a kernel may take to open, and again for its first batch
	// unless Timeout is set; default 30m, since models are large.
	OpenTimeout time.Duration
	// Retries is how often a chunk whose worker was lost is retried before its records
	// are marked as failed; default 3, negative for none.
	Retries int

	// Checkpoint is how long a worker computes before its results are committed;
	// default 30s. A kill loses at most that much work per worker.
	Checkpoint time.Duration
	// DrainTimeout is how long the batches in flight may take once the job stops;
	// default 20s, since schedulers kill after 30. Batches that take longer are
	// computed by the next run.
	DrainTimeout time.Duration
	// MaxTime stops the job, resumably, after this time; 0 for never.
	MaxTime time.Duration
	// Halt stops the job, resumably, when too many records have failed.
	Halt Halt
	// GiveUpMark marks the remaining records as failed when no device is left, instead
	// of stopping the job resumably.
	GiveUpMark bool

	// Dir is the working folder of kernels; default the process's own.
	Dir string
	// WorkerBinary is the gpurun program to start workers from; default this program,
	// if its main calls worker.Init.
	WorkerBinary string
	// LogLevel is the level of the workers' logs: debug, info, warn, error.
	LogLevel string

	// OnEvent receives events, one at a time, on the job's goroutines; it must return
	// quickly.
	OnEvent func(Event)
	// Control, if set, lets other goroutines pause and inspect the job.
	Control *Control
	// Claim is called to reserve the devices before they are used, and may wait until
	// they are free. With nil, the job uses them as if it had them to itself. MakePlan
	// calls it for a preview.
	Claim func(context.Context, ClaimRequest) (*Claim, error)
	// Abort, when closed, ends the job at once, without waiting for the batches being
	// computed. Canceling Run's context waits for those.
	Abort <-chan struct{}

	// noDurable skips durable points, for the benchmark that measures their cost.
	noDurable bool
	// durableEvery is the interval between durable points, for tests that want many.
	durableEvery time.Duration
	// leastTimeout is the minimum a batch gets unless Timeout is set.
	leastTimeout time.Duration
	// pluginPath overrides $GPURUN_PLUGIN_PATH, so that Retry uses the job's.
	pluginPath string
	// framed makes Retry able to tell which lines belong to which record.
	framed bool
	// checkWait is how long workers wait for the check of an earlier run's output,
	// default outputCheckWait; with checkAll they wait until it ends.
	checkWait time.Duration
	checkAll  bool
	// devices replaces the machine's devices in tests, clock the monitor's clock.
	devices gpu.Options
	clock   gpu.Clock
	// handBack is how long a paused worker keeps its chunk.
	handBack time.Duration
	// stallAfter is how long a silent first batch goes unreported.
	stallAfter time.Duration
}

// NoGrouping, as GroupBy, forms batches in input order even if the kernel asks for groups.
const NoGrouping = "none"

// AutoWorkers, as WorkersPerGPU, lets gpurun choose the number.
const AutoWorkers = -1

// Halt is the limit of failed records; the zero value means no limit.
type Halt struct {
	// Records is a number of failed records, 0 for no limit.
	Records int64
	// Percent is a percentage of all records, 0 for no limit.
	Percent float64
}

// reached reports whether the job must stop. For a stream, whose total is unknown, the
// percentage applies to the records so far, once there are enough.
func (h Halt) reached(failed, done, total int64) bool {
	if h.Records > 0 && failed >= h.Records {
		return true
	}
	if total < 0 {
		total = max(done, 1000)
	}
	return h.Percent > 0 && total > 0 && 100*float64(failed) > h.Percent*float64(total)
}

// withDefaults fills in defaults and rejects invalid values.
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
	setDefault(&c.PartBytes, commit.DefaultPartBytes)
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
		return fault.New(fault.Usage, "no kernel: name one, for example echo").WithCode(fault.NoKernel, "echo")
	case len(c.KernelConfig) > 0 && !json.Valid(c.KernelConfig):
		return fault.New(fault.Usage, "the kernel configuration is not valid JSON")
	case len(c.Keep) > 64:
		return fault.New(fault.Usage, "at most 64 members can be kept").Set("keep")
	}
	for _, name := range c.Keep {
		if strings.TrimSpace(name) == "" {
			return fault.New(fault.Usage, "a member to keep has an empty name").Set("keep")
		}
	}
	for _, what := range c.AcceptChanges {
		if !slices.Contains(acceptable, what) {
			return fault.New(fault.Usage, "change %q cannot be accepted, only %s", what, strings.Join(acceptable, ", ")).Set("accept-changes")
		}
	}
	if err := gpu.CheckProfile(c.Profile); err != nil && c.Profile != "" {
		return err
	}
	if c.NaN != "" && c.NaN != NaNNull && c.NaN != NaNError {
		return fault.New(fault.Usage, "%q for NaN is neither %s nor %s", c.NaN, NaNNull, NaNError).Set("nan")
	}
	switch c.Split {
	case input.SplitAuto, input.SplitRecords, input.SplitBytes:
	default:
		return fault.New(fault.Usage, "split %q is neither records nor bytes", c.Split).Set("split")
	}
	for _, one := range []struct {
		name  string
		value int64
	}{
		{"gpus-per-worker", int64(c.GPUsPerWorker)}, {"workers-per-gpu", int64(c.WorkersPerGPU)},
		{"batch-size", int64(c.BatchSize)}, {"batch-bytes", int64(c.BatchBytes)}, {"batch-cost", c.BatchCost},
		{"chunks-per-gpu", int64(c.ChunksPerGPU)}, {"chunk-records", c.ChunkRecords},
		{"max-record-bytes", c.MaxRecordBytes}, {"limit", c.Limit}, {"offset", c.Offset},
		{"timeout", int64(c.Timeout)}, {"open-timeout", int64(c.OpenTimeout)}, {"flush", int64(c.Flush)},
		{"checkpoint", int64(c.Checkpoint)}, {"max-time", int64(c.MaxTime)},
		{"drain-timeout", int64(c.DrainTimeout)}, {"part-bytes", c.PartBytes},
		{"io-workers", int64(c.IOWorkers)},
	} {
		if one.value < 0 && (one.name != "workers-per-gpu" || one.value != AutoWorkers) {
			return fault.New(fault.Usage, "%s must not be negative", strings.ReplaceAll(one.name, "-", " ")).Set(one.name)
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

// cores returns the number of CPUs that this process may use.
func cores() int { return resources.Cores() }
