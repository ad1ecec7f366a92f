package spec

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/wire"
)

// Defaults that are more than a value in the table of settings.
const (
	DefaultBatchSize      = 128
	DefaultChunksPerGPU   = 16
	DefaultMaxRecordBytes = 16 << 20
	DefaultTimeout        = 5 * time.Minute
)

// Values of Config.Kernel.Start: how the interpreters of a Python kernel start.
const (
	StartFork  = "fork"
	StartFresh = "fresh"
)

// Values of Config.Kernel.NaN: what happens to NaN and infinity.
const (
	NaNNull  = "null"
	NaNError = "error"
)

// leastTimeout is the minimum a batch gets, however fast the others were, unless
// Timeout is set.
const leastTimeout = time.Minute

// Config are the settings of a job. The zero value of each field selects its default.
type Config struct {
	Input    Input    `json:"input"`
	Output   Output   `json:"output"`
	Kernel   Kernel   `json:"kernel"`
	Fetch    Fetch    `json:"fetch,omitzero"`
	Devices  Devices  `json:"devices"`
	Batching Batching `json:"batching"`
	Resume   Resume   `json:"resume"`
	Failures Failures `json:"failures"`
	Display  Display  `json:"display"`

	// Format is what the lines of input and output are: any JSON, or OpenAIBatch for
	// requests and results of OpenAI's batch files. docs/llm.md describes those.
	Format string `json:"format,omitempty"`
	// Dir is the working folder of kernels; default the process's own. Relative names of
	// kernels refer to it.
	Dir string `json:"dir,omitempty"`
}

// Input is what a job reads, and which records of it.
type Input struct {
	// Path is a file of JSON lines, plain or compressed with gzip or zstd; or - for Stdin. A
	// pipe or device is streamed, like -. It may also be what Paths may contain. A job that
	// reads a stream resumes if the same bytes arrive again.
	Path string `json:"path,omitempty"`
	// Paths, if set, are read instead of Path, one after the other: files, globs (also with
	// **), folders, @FILE for a list of names, - for Stdin.
	Paths []string `json:"paths,omitempty"`
	// Format is the format of all inputs: jsonl and others, see package decode. By default it is
	// recognized by content.
	Format string `json:"format,omitempty"`
	// Columns are the columns of Parquet, Arrow and CSV files to read, in this order; the default
	// is all. In a CSV file, a type may follow a name: "id:int64".
	Columns []string `json:"columns,omitempty"`
	// Stdin is read for "-"; nil means os.Stdin.
	Stdin io.Reader `json:"-"`
	// Offset skips the first records; Limit caps how many are processed. Default 0: all.
	Limit  int64 `json:"limit,omitempty"`
	Offset int64 `json:"offset,omitempty"`
	// Place is where the records that Offset and Limit select are in an input that is one
	// plain file, and Counts are the numbers of records in the files of any other input; nil
	// if unknown. They save reading what precedes the records; see MakeSurvey.
	Place  *chunk.Chunk `json:"-"`
	Counts []int64      `json:"-"`
	// Table is what the input shows of the columns of an output that is a table; nil if it is not
	// sampled yet. See MakeSurvey.
	Table *columns.TableSpec `json:"-"`
	// Reprocess also passes records that come in with an _error to the kernel; the
	// _error is removed from those that succeed. By default they pass through unchanged.
	Reprocess bool `json:"reprocess,omitempty"`
	// MaxRecordBytes is the length above which a line counts as a failed record; default
	// 16 MiB, so that a file without line breaks does not exhaust memory.
	MaxRecordBytes int64 `json:"max_record_bytes,omitempty"`
	// NoValidate trusts the input to be valid JSON, one value per line. An invalid line
	// goes to the kernel as it is.
	NoValidate bool `json:"no_validate,omitempty"`
	// Split is how a file is cut; default by records up to 16 GiB, by bytes above:
	// counting records first would delay the start. It has no effect on a stream.
	Split input.Split `json:"split,omitempty"`
	// ChunkRecords is the number of records in a chunk of a stream or of a decoded file; default
	// 16 batches, or a multiple of that for a file.
	ChunkRecords int64 `json:"chunk_records,omitempty"`
	// Flush is how long a record of a stream may wait for its chunk to fill; default 1s.
	Flush time.Duration `json:"flush,omitzero"`
	// SkipBad skips what cannot be read of a damaged file, and reports it. By default such a
	// file stops the job.
	SkipBad bool `json:"skip_bad,omitempty"`
}

// Reads reports whether the columns to read include a member.
func (i Input) Reads(member string) bool {
	return len(i.Columns) == 0 || slices.ContainsFunc(i.Columns, func(column string) bool {
		name, _, _ := strings.Cut(column, ":")
		return column == member || name == member
	})
}

// Output is where results go, and what they contain.
type Output struct {
	// Path is a file, or a folder of parts with a manifest if the name ends in /. Either
	// appears under its name when it is complete. Standard output (-), a device and a pipe
	// are written as results arrive; such a job cannot be resumed.
	Path string `json:"path,omitempty"`
	// Stdout is written if Path is "-"; nil means os.Stdout.
	Stdout io.Writer `json:"-"`
	// Format is how the output is stored: jsonl, jsonl.gz, jsonl.zst, parquet or arrow. Default what
	// the name of the output says, else jsonl. It must not contradict the name.
	Format string `json:"format,omitempty"`
	// Columns are the columns of an output that is a table, in this order, each perhaps with a type:
	// "id:int64". By default, a table has all members of the results, with the types that
	// they have in the first input records and in the first results.
	Columns []string `json:"columns,omitempty"`
	// Arrays are columns of the results that are stored as NumPy arrays and left out of the
	// lines: row i belongs to line i of the output. Without Errors, a mask next to each array
	// (NAME.mask.npy) has a 1 for the row of each failed record.
	Arrays []OutputArray `json:"arrays,omitempty"`
	// Errors is a file for the failed records; if empty, they stay in their place in the
	// output. It must not be the output.
	Errors string `json:"errors,omitempty"`
	// Keep names the input fields to keep in the output next to the kernel's; empty keeps
	// all.
	Keep []string `json:"keep,omitempty"`
	// SourceField is the name of a member to add to every result: the input file and the
	// line, or the row, that its record comes from. Empty adds none.
	SourceField string `json:"source_field,omitempty"`
	// Force replaces an existing output, which is an error otherwise.
	Force bool `json:"force,omitempty"`
	// PartBytes is the minimum size of a part in an output folder, before encoding; default
	// 64 MiB. A part ends where a chunk ends.
	PartBytes int64 `json:"part_bytes,omitempty"`
}

// Kernel is what computes the records.
type Kernel struct {
	// Name is the name of a built-in kernel, a Python file, exec:COMMAND, the path of a
	// program, or a name found in $GPURUN_PLUGIN_PATH.
	Name string `json:"name,omitempty"`
	// Path is a list of folders in which kernels are found by name; default
	// $GPURUN_PLUGIN_PATH.
	Path string `json:"path,omitempty"`
	// Config is a JSON value passed to the kernel.
	Config json.RawMessage `json:"config,omitempty"`
	// Python is the interpreter for Python kernels; default that of the active
	// environment, else python3.
	Python string `json:"python,omitempty"`
	// IOWorkers is the most threads that run a Python kernel's prepare function,
	// default 4; or the most processes in each worker if it defines setup_prepare,
	// default the worker's share of the cores.
	IOWorkers int `json:"io_workers,omitempty"`
	// Start is how interpreters start: StartFork (default) forks them from one that has imported
	// the kernel's file; with StartFresh each imports it.
	Start string `json:"start,omitempty"`
	// KeepWarm is how long an interpreter that has imported the kernel's packages outlives the job,
	// for the next one; 0 if none does.
	KeepWarm time.Duration `json:"keep_warm,omitempty"`
	// ExecMode is how an exec: kernel runs its program: batch (default), stream or
	// per-record. Other kernels reject it.
	ExecMode string `json:"exec_mode,omitempty"`
	// ExecID names a field of each record that an exec: kernel's program repeats in its
	// response, so that every line is matched with its record; empty disables this. It
	// conflicts with ExecMode per-record, where every line answers the only record.
	ExecID string `json:"exec_id,omitempty"`
	// NaN is what happens to numbers that JSON cannot represent: NaNNull (default) writes
	// null; NaNError fails the record.
	NaN string `json:"nan,omitempty"`
}

// Fetch is which files workers fetch for the records, ahead of the kernel; by default none.
type (
	Fetch       = wire.Fetch
	FetchMember = wire.FetchMember
)

// Devices is where kernels run, and how GPUs are kept healthy.
type Devices struct {
	// GPUs selects devices: all (default), 0,2, 0-3, GPU-…, cpu:4.
	GPUs string `json:"gpus,omitempty"`
	// GPUsPerWorker is the number of GPUs each worker gets, for models that span several;
	// default 1. The number of GPUs must be a multiple of it.
	GPUsPerWorker int `json:"gpus_per_worker,omitempty"`
	// WorkersPerGPU is the number of workers on each device. The default, AutoWorkers,
	// starts one and adds more while that makes the device faster; see package scaling.
	WorkersPerGPU int `json:"workers_per_gpu,omitempty"`
	// Claim is called to reserve the devices before they are used, and may wait until
	// they are free. With nil, the job uses them as if it had them to itself. MakePlan
	// calls it for a preview.
	Claim func(context.Context, ClaimRequest) (*Claim, error) `json:"-"`
	// Stagger lets the first worker open its kernel alone before the others start: if the
	// model cannot be loaded, the job stops before every GPU has tried. By default it does
	// so only if files must be read from a network file system.
	Stagger Stagger `json:"stagger,omitzero"`
	// PinUUID pins devices by UUID instead of index, which some frameworks reject.
	PinUUID bool `json:"pin_uuid,omitempty"`
	// Profile sets how early a hot GPU is throttled: datacenter (default) acts just
	// before the GPU would throttle itself, workstation acts earlier.
	Profile string `json:"profile,omitempty"`
	// Monitor sets the thresholds for GPU health; the zero value means
	// gpu.DefaultConfig.
	Monitor gpu.Config `json:"monitor,omitzero"`
	// NoMonitor disables monitoring: GPUs are not throttled however hot they get.
	NoMonitor bool `json:"no_monitor,omitempty"`
	// NoAffinity lets workers run on all CPUs, not only on those near their GPU.
	NoAffinity bool `json:"no_affinity,omitempty"`
}

// Batching is how records are grouped for kernels and workers.
type Batching struct {
	// Size is the number of records in a batch; default what the kernel asks for, else
	// 128.
	Size int `json:"size,omitempty"`
	// Auto lets each worker search for the batch size with the highest throughput,
	// starting at Size.
	Auto bool `json:"auto,omitempty"`
	// Bytes limits the size of a batch, so that long records do not exhaust memory;
	// default 32 MiB. A longer record forms its own batch.
	Bytes int `json:"bytes,omitempty"`
	// GroupBy is a member of a record. Batches then hold records of similar size: by the
	// length of a text or array, or by the value of a number; a record without the member
	// has size 0. Default what the kernel asks for, else batches in input order; NoGrouping
	// for the latter. The output is in input order either way.
	GroupBy string `json:"group_by,omitempty"`
	// Cost limits the size of the grouped records of a batch, padding included: the
	// largest times their number. 0 for no limit. A larger record forms its own batch.
	Cost int64 `json:"cost,omitempty"`
	// ChunksPerGPU is the number of chunks per slot that the input is cut into; default
	// 16, so that fast devices can take work from slow ones. 1 is the static split,
	// ceil(n / slots).
	ChunksPerGPU int `json:"chunks_per_gpu,omitempty"`
}

// Resume is how a job stops and resumes.
type Resume struct {
	// Fresh starts over instead of resuming an interrupted job.
	Fresh bool `json:"fresh,omitempty"`
	// AcceptChanges resumes an interrupted job although these changed: kernel, config.
	// Then results of both versions are in the output.
	AcceptChanges []string `json:"accept_changes,omitempty"`
	// MaxTime stops the job, resumably, after this time; 0 for never.
	MaxTime time.Duration `json:"max_time,omitzero"`
	// MaxRequests and MaxTokens stop the job, resumably, when all of its runs together have
	// sent this number of requests or used this number of tokens; 0 for no limit. A request is an attempt to
	// compute a record. Only a kernel that computes records one by one can be limited. Answers
	// to requests that were sent before are awaited, so more tokens may be used.
	MaxRequests int64 `json:"max_requests,omitempty"`
	MaxTokens   int64 `json:"max_tokens,omitempty"`
	// Spent is what earlier jobs have counted for the same records: see Spent. The job's counts
	// begin there.
	Spent map[string]int64 `json:"-"`
	// DrainTimeout is how long the batches in flight may take once the job stops; default
	// 20s, since schedulers kill after 30. Batches that take longer are computed by the
	// next run.
	DrainTimeout time.Duration `json:"drain_timeout,omitzero"`
	// Checkpoint is how long a worker computes before its results are committed; default
	// 30s. A kill loses at most that much work per worker.
	Checkpoint time.Duration `json:"checkpoint,omitzero"`
	// WorkDir is where the job folder is created; default next to the output. A resume
	// and a retry need the same.
	WorkDir string `json:"work_dir,omitempty"`
	// Spool keeps a copy of a streamed input in the job folder until its results are durable, so that
	// the job resumes without the stream once that was read to its end.
	Spool bool `json:"spool,omitempty"`
	// Clean removes the job folder after a job in which no record failed.
	Clean bool `json:"clean,omitempty"`
}

// Failures is what counts as a failure, and when to give up.
type Failures struct {
	// Timeout is how long a batch may take, including the first. By default it is
	// derived from the successful batches: 20 times the slowest, at least 1m, and at
	// least DefaultTimeout while few have been measured. A kernel's first batch may
	// then take as long as opening it. A record of a kernel that computes records one by one
	// gets at least ten times as long, or what the kernel asks for (plugins.Info).
	Timeout time.Duration `json:"timeout,omitzero"`
	// OpenTimeout is how long a kernel may take to open, and again for its first batch
	// unless Timeout is set; default 30m, since models are large.
	OpenTimeout time.Duration `json:"open_timeout,omitzero"`
	// Retries is how often a chunk whose worker was lost is retried before its records
	// are marked as failed; default 3, negative for none.
	Retries int `json:"retries,omitempty"`
	// Halt stops the job, resumably, when too many records have failed.
	Halt Halt `json:"halt,omitzero"`
	// GiveUpMark marks the remaining records as failed when no device is left, instead
	// of stopping the job resumably.
	GiveUpMark bool `json:"give_up_mark,omitempty"`
}

// Display is how a job reports what it does.
type Display struct {
	// OnEvent receives events, one at a time, on the job's goroutines; it must return
	// quickly. Default nil: Run's report is all there is.
	OnEvent func(Event) `json:"-"`
	// LogLevel is the level of the workers' logs: debug, info (default), warn, error.
	LogLevel string `json:"log_level,omitempty"`
}

// OpenAIBatch, as Config.Format, reads and writes the lines of OpenAI's batch files.
const OpenAIBatch = "openai-batch"

// NoGrouping, as GroupBy, forms batches in input order even if the kernel asks for groups.
const NoGrouping = "none"

// AutoWorkers, as WorkersPerGPU, lets gpurun choose the number.
const AutoWorkers = -1

// Halt is the limit of failed records; the zero value means no limit.
type Halt struct {
	// Records is a number of failed records, 0 for no limit.
	Records int64 `json:"records,omitempty"`
	// Percent is a percentage of all records, 0 for no limit.
	Percent float64 `json:"percent,omitempty"`
}

// Reached reports whether the job must stop. For a stream, whose total is unknown, the
// percentage applies to the records so far, once there are enough.
func (h Halt) Reached(failed, done, total int64) bool {
	if h.Records > 0 && failed >= h.Records {
		return true
	}
	if total < 0 {
		total = max(done, 1000)
	}
	return h.Percent > 0 && total > 0 && 100*float64(failed) > h.Percent*float64(total)
}

// Stagger is whether the first worker opens its kernel alone before the others start.
type Stagger int

const (
	// StaggerAuto staggers if the kernel, its interpreter or the caches of models are on
	// a network file system: the first worker then brings the files into the page cache,
	// instead of all reading them over the network at once.
	StaggerAuto Stagger = iota
	StaggerOn
	StaggerOff
)

// Event is something that happened in a job; package orchestrator has them.
type Event = interface {
	// EventName is the name in JSON events.
	EventName() string
}
