package spec

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/input/decode"
)

// Headings of settings, for most of which Config has a group.
const (
	GroupFolder   = "Folder"
	GroupKernel   = "Kernel"
	GroupFetch    = "Fetch"
	GroupOutput   = "Output"
	GroupDevices  = "Devices"
	GroupBatching = "Batching"
	GroupInput    = "Input"
	GroupResume   = "Stopping and resuming"
	GroupFailures = "Failures"
	GroupDisplay  = "Display"
)

// Settings lists the settings of a job in the order in which they are listed, the most used first.
var Settings = slices.Concat(
	under(GroupKernel, []Setting{
		{Name: "kernel", Short: "k", Field: "Kernel.Name", Value: "KERNEL", Common: true, Shapes: true, Help: "kernel: a Python file (embed.py, or embed.py:FUNCTION), exec:COMMAND, openai:URL (a model server), serve:COMMAND (a model server that gpurun starts), a program (./kernel), a built-in (echo), or a name in $GPURUN_PLUGIN_PATH"},
		{Name: "kernel-config", Kind: Document, Value: "FILE", Endings: []string{"json"}, Path: unlessJSON, Common: true, Shapes: true, Help: "kernel configuration: a JSON file or inline JSON"},
		{Name: "steps", Kind: Steps, Place: OnlyInFile, Excludes: []string{"kernel", "kernel-config"}, Shapes: true, Help: "a chain of kernels instead of kernel: each processes the results of the previous one"},
		{Name: "step", Kind: Repeated, Place: NotInFile, Instead: "steps", Value: "KERNEL", Shapes: true, Help: "run a chain of kernels instead of a single one (repeatable): each KERNEL processes the results of the previous one on the same GPU"},
		{Name: "step-config", Kind: Repeated, Place: NotInFile, Instead: "steps", Value: "STEP=JSON", Shapes: true, Help: "configuration of a step: STEP=JSON or STEP=FILE, where STEP is its name or its number, counting from 1"},
		{Name: "python", Field: "Kernel.Python", Value: "PATH", Path: unlessCommand, Help: "interpreter for Python kernels (default: that of the active venv or conda environment, else python3)"},
		{Name: "io-workers", Kind: Int, Field: "Kernel.IOWorkers", Help: "maximum number of threads that run a Python kernel's prepare(batch) ahead of process (default 4), or of processes if it defines setup_prepare (default the worker's share of the cores)"},
		{Name: "start", Field: "Kernel.Start", Unset: "fork", Words: []string{"fork", "fresh"}, Help: "how the interpreters of a Python kernel start: fork them from one that has imported the kernel's file, or fresh: let each import it (default fork)"},
		{Name: "keep-warm", Kind: Duration, Field: "Kernel.KeepWarm", Alone: "10m", Value: "TIME", Help: "keep an interpreter that has imported the packages of a Python kernel for this TIME after its last use (10m if none is given), so that the next job or try starts in a second; see gpurun warm"},
		{Name: "exec-mode", Field: "Kernel.ExecMode", Unset: "batch", Words: []string{"batch", "stream", "per-record"}, Shapes: true, Help: "how exec: runs its program: batch (one process per batch), stream (one for all batches), per-record (default batch)"},
		{Name: "exec-id", Field: "Kernel.ExecID", Value: "MEMBER", Help: "check that each line an exec: program prints repeats this MEMBER (a string or number) of its record"},
		{Name: "nan", Field: "Kernel.NaN", Unset: "null", Words: []string{"null", "error"}, Shapes: true, Help: "handle NaN and infinity, which JSON lacks: null replaces them, error fails their records (default null)"},
	}),
	under(GroupFetch, []Setting{
		{Name: "fetch", Kind: Repeated, Field: "Fetch.Members", Value: "NAME=FIELD", Shapes: true, Help: "read the file that member FIELD of each record names, by path, URL or data: URI; the kernel gets its bytes as NAME (repeatable)"},
		{Name: "fetch-root", Field: "Fetch.Root", Value: "FOLDER", Path: whole, Shapes: true, Help: "FOLDER that the paths of files to fetch are relative to and must not leave (default: that of the input files, or the current one for a stream)"},
		{Name: "fetch-max-bytes", Kind: Size, Field: "Fetch.MaxBytes", Default: "64MiB", Least: 1, Shapes: true, Help: "maximum size of a fetched file; a larger one fails its record"},
		{Name: "fetch-concurrency", Kind: Int, Field: "Fetch.Concurrency", Default: "64", Least: 1, Help: "files that each worker fetches at a time"},
		{Name: "fetch-per-host", Kind: Int, Field: "Fetch.PerHost", Default: "32", Least: 1, Help: "files that each worker fetches at a time from one host"},
		{Name: "fetch-timeout", Kind: Duration, Field: "Fetch.Timeout", Default: "1m0s", Least: 1, Help: "time limit for a file, retries included"},
		{Name: "fetch-retries", Kind: Int, Field: "Fetch.Retries", Default: "4", Zero: -1, Help: "retry a fetch up to this many times after a failure that may pass"},
		{Name: "fetch-allow-private", Kind: Bool, Field: "Fetch.AllowPrivate", Help: "let records name URLs of private and local addresses, and use the proxy that the environment names"},
	}),
	under(GroupOutput, []Setting{
		{Name: "output", Short: "o", Field: "Output.Path", Value: "FILE", Path: whole, Common: true, Help: "output FILE (.jsonl, .jsonl.gz, .jsonl.zst, .parquet, .arrow), FOLDER/ for output in parts with a manifest, or - for standard output"},
		{Name: "output-format", Field: "Output.Format", Value: "FORMAT", Words: encode.Names(), Shapes: true, Help: "FORMAT of the output: " + strings.Join(encode.Names(), ", ") + " (default: what the name of the output says, else jsonl)"},
		{Name: "column", Kind: Repeated, Field: "Output.Arrays", Value: "NAME=FILE.npy", Path: afterName, Shapes: true, Help: "store column NAME of the results as a NumPy array and leave it out of the lines: NAME=FILE.npy, or NAME=FILE.f16.npy in half precision (repeatable); row i belongs to line i"},
		{Name: "errors", Field: "Output.Errors", Value: "FILE", Endings: []string{"jsonl"}, Path: whole, Common: true, Shapes: true, Help: "write failed records to this FILE instead of the output"},
		{Name: "keep", Kind: List, Field: "Output.Keep", Common: true, Shapes: true, Help: "keep only these members of the input records, in addition to the kernel's results: id,url"},
		{Name: "source-field", Field: "Output.SourceField", Shapes: true, Help: "add a member of this name to every result: the input file and line, or row, of its record"},
		{Name: "force", Kind: Bool, Field: "Output.Force", Common: true, Help: "overwrite an existing output"},
		{Name: "part-bytes", Kind: Size, Field: "Output.PartBytes", Default: "64MiB", Least: 1, Help: "in an output FOLDER/, start a new part once the current one reaches this size; parts end at chunk boundaries"},
	}),
	under(GroupDevices, []Setting{
		{Name: "gpus", Field: "Devices.GPUs", Default: "all", Least: 1, Try: []string{"all", "cpu:1", "cpu:2", "cpu:4"}, Common: true, Help: "devices: all, indices (0,2 or 0-3), UUIDs, MIG instances (2:0), or cpu:4 for four CPU workers"},
		{Name: "gpus-per-worker", Kind: Int, Field: "Devices.GPUsPerWorker", Default: "1", Least: 1, Help: "GPUs per worker, for models that span several GPUs"},
		{Name: "workers-per-gpu", Kind: Int, Field: "Devices.WorkersPerGPU", Default: "auto", Least: 1, Words: []string{"auto"}, Try: []string{"auto", "1", "2", "4"}, Help: "workers per GPU; auto starts with one and adds more while that makes the GPU faster and fits in memory"},
		{Name: "stagger", Kind: Bool, Field: "Devices.Stagger", Default: "auto", Words: []string{"auto"}, Help: "let the first worker load its model before the others start, and stop if it fails; auto: if the files are on a network file system"},
		{Name: "pin", Field: "Devices.PinUUID", Default: "index", Words: []string{"index", "uuid"}, Help: "set CUDA_VISIBLE_DEVICES by index or uuid; some frameworks do not accept UUIDs"},
		{Name: "profile", Field: "Devices.Profile", Default: "datacenter", Words: []string{"datacenter", "workstation"}, Help: "when to slow down a hot GPU: datacenter, or workstation (earlier)"},
		{Name: "monitor-config", Value: "FILE", Endings: []string{"yaml", "yml"}, Path: whole, Help: "YAML FILE with the monitor's temperature, memory and timing thresholds"},
		{Name: "no-monitor", Kind: Bool, Field: "Devices.NoMonitor", Help: "do not monitor temperature and memory, and never slow down a GPU"},
		{Name: "no-affinity", Kind: Bool, Field: "Devices.NoAffinity", Help: "let workers use all CPUs instead of only those close to their GPU"},
	}),
	under(GroupBatching, []Setting{
		{Name: "batch-size", Kind: Int, Field: "Batching.Size", Least: 1, Words: []string{"auto"}, AutoField: "Batching.Auto", Common: true, Help: "records per batch, or auto to find the fastest size in the first 30 s (default: what the kernel asks for, else 128)"},
		{Name: "batch-bytes", Kind: Size, Field: "Batching.Bytes", Default: "32MiB", Least: 1, Help: "maximum bytes per batch, so that long records do not exhaust memory"},
		{Name: "group-by", Field: "Batching.GroupBy", Value: "MEMBER", Help: "form batches of records with similar size of this MEMBER, which saves padding; the output stays in input order; none: in input order, even if the kernel asks for groups"},
		{Name: "batch-cost", Kind: Size, Field: "Batching.Cost", Help: "maximum size of a batch that group-by forms, padding included (records times the size of the largest; 0: no limit)"},
		{Name: "chunks-per-gpu", Kind: Int, Field: "Batching.ChunksPerGPU", Default: "16", Least: 1, Help: "chunks per worker; more balance unequal GPUs better, 1 splits statically into ceil(n/workers)"},
	}),
	under(GroupInput, []Setting{
		{Name: "format", Field: "Format", Value: "FORMAT", Words: []string{"openai-batch"}, Shapes: true, Help: "FORMAT of the lines of input and output: openai-batch for requests and results of OpenAI's batch files; see gpurun manual llm#batch-files (default: openai-batch for openai: and serve: without a prompt, else any JSON)"},
		{Name: "input-format", Field: "Input.Format", Words: decode.Names(), Shapes: true, Help: "format of the input instead of recognizing it: " + strings.Join(decode.Names(), ", ")},
		{Name: "columns", Kind: List, Field: "Input.Columns", TableField: "Output.Columns", Shapes: true, Help: "of a Parquet or Arrow output: its columns, in this order, with types if you like: id:int64,day:date,embedding; otherwise: read only these columns of Parquet, Arrow and CSV files, in CSV files with types"},
		{Name: "limit", Kind: Int, Field: "Input.Limit", Common: true, Shapes: true, Help: "process at most this many records (0: all)"},
		{Name: "offset", Kind: Int, Field: "Input.Offset", Shapes: true, Help: "skip this many records first"},
		{Name: "bad-input", Field: "Input.SkipBad", Default: "fail", Words: []string{"fail", "skip"}, Help: "what to do with a damaged file (truncated or corrupt gzip or zstd): fail, or skip the rest of it"},
		{Name: "reprocess", Kind: Bool, Field: "Input.Reprocess", Shapes: true, Help: "process input records that carry an \"_error\" and remove it, instead of passing them through"},
		{Name: "max-record-bytes", Kind: Size, Field: "Input.MaxRecordBytes", Default: "16MiB", Least: 1, Shapes: true, Help: "maximum record length; longer lines are kept as failed records"},
		{Name: "no-validate", Kind: Bool, Field: "Input.NoValidate", Shapes: true, Help: "do not check that each line is valid JSON; saves about 0.2 s of CPU time per GB"},
		{Name: "split", Field: "Input.Split", Default: "auto", Words: []string{"auto", "records", "bytes"}, Help: "split a file by records (equal counts, counts the input first) or bytes (starts immediately); auto: by records up to 16 GiB"},
		{Name: "chunk-records", Kind: Int, Field: "Input.ChunkRecords", Help: "records per chunk of a stream or a decoded file (default: 16 batches, or a multiple for files)"},
		{Name: "flush", Kind: Duration, Field: "Input.Flush", Default: "1s", Least: 1, Help: "maximum time that a record of a stream waits for its chunk to fill"},
	}),
	under(GroupResume, []Setting{
		{Name: "fresh", Kind: Bool, Field: "Resume.Fresh", Help: "start over instead of resuming an interrupted job"},
		{Name: "accept-changes", Kind: List, Field: "Resume.AcceptChanges", Try: []string{"kernel", "config", "kernel,config"}, Help: "resume even if these have changed: kernel,config"},
		{Name: "spool", Kind: Bool, Field: "Resume.Spool", Help: "copy a streamed input to the job folder as fast as it arrives, and resume from that copy"},
		{Name: "max-time", Kind: Duration, Field: "Resume.MaxTime", Help: "stop after this time, for example before a scheduler's limit; run the same command to resume (0: no limit)"},
		{Name: "max-requests", Kind: Int, Field: "Resume.MaxRequests", Help: "stop when the job has sent this many requests, retries included, in all of its runs; raise it and run the same command to resume (0: no limit)"},
		{Name: "max-tokens-total", Kind: Int, Field: "Resume.MaxTokens", Help: "stop when the job's answers have used this many tokens in all of its runs; requests in flight are still answered (0: no limit)"},
		{Name: "drain-timeout", Kind: Duration, Field: "Resume.DrainTimeout", Default: "20s", Least: 1, Help: "when the job stops (signal, cancel, max-time, halt), wait this long for batches in flight; the next run computes the others"},
		{Name: "checkpoint", Kind: Duration, Field: "Resume.Checkpoint", Default: "30s", Least: 1, Help: "commit each worker's results at least this often, which ends a chunk; a kill loses at most this much work per worker"},
		{Name: "work-dir", Field: "Resume.WorkDir", Value: "FOLDER", Path: whole, Help: "FOLDER for the job folder instead of the output's; several jobs can share it; a retry needs the same"},
		{Name: "clean", Kind: Bool, Field: "Resume.Clean", Help: "remove the job folder if every record succeeds (exit status 0)"},
	}),
	under(GroupFailures, []Setting{
		{Name: "timeout", Kind: Duration, Field: "Failures.Timeout", Least: 1, Help: "time limit per batch, including the first, or per record if the kernel computes records one by one; a kernel that exceeds it is killed and the batch is bisected to isolate the record that hangs (default 20 times the slowest good one, at least 1m for a batch, 5m until enough have been measured, and 10m for a record; for openai: and serve:, their own timeout)"},
		{Name: "open-timeout", Kind: Duration, Field: "Failures.OpenTimeout", Default: "30m0s", Least: 1, Help: "time limit for a kernel to load its model, and for its first batch unless timeout is set"},
		{Name: "retries", Kind: Int, Field: "Failures.Retries", Default: "3", Zero: -1, Help: "retry up to this many times before marking records as failed: a chunk whose worker was lost, and a request that a model server refuses or does not answer"},
		{Name: "halt", Field: "Failures.Halt", Default: "never", Try: []string{"never", "fail=1", "fail=100", "fail=5%"}, Help: "stop when this many records have failed: never, fail=100, fail=5%; run the same command to resume"},
		{Name: "give-up", Field: "Failures.GiveUpMark", Default: "stop", Words: []string{"stop", "mark"}, Help: "when no usable device remains: stop (run the same command to resume), or mark the remaining records as failed"},
		{Name: "truncated", Words: []string{"keep", "fail"}, Shapes: true, Help: "what becomes of an answer of openai: or serve: that the server cut off at a limit of tokens: keep, or fail its record (default keep)"},
	}),
	under(GroupDisplay, []Setting{
		{Name: "log-level", Field: "Display.LogLevel", Default: "info", Words: []string{"debug", "info", "warn", "error"}, Help: "log level of the workers: debug, info, warn, error"},
	}),
)

// under lists settings under a heading.
func under(heading string, settings []Setting) []Setting {
	for i := range settings {
		settings[i].Group = heading
	}
	return settings
}

// whole is the Path of a setting that is a path.
func whole(value string, move func(string) string) string { return move(value) }

// unlessJSON is the Path of a setting that is JSON, or the name of a file with it.
func unlessJSON(value string, move func(string) string) string {
	if !NamesFile(value) {
		return value
	}
	return move(value)
}

// NamesFile reports whether the value of a document is the name of a file, not JSON itself.
func NamesFile(value string) bool {
	return !json.Valid([]byte(value)) && !strings.HasPrefix(strings.TrimSpace(value), "{")
}

// unlessCommand is the Path of a setting that is a path, or a command in $PATH.
func unlessCommand(value string, move func(string) string) string {
	if !strings.Contains(value, "/") {
		return value
	}
	return move(value)
}

// afterName is the Path of a setting of the form NAME=PATH. A name may contain the sign, too.
func afterName(value string, move func(string) string) string {
	at := strings.LastIndexByte(value, '=')
	if at <= 0 || at == len(value)-1 {
		return value
	}
	return value[:at+1] + move(value[at+1:])
}
