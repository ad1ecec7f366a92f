package spec

import (
	"encoding/json"
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
var Settings = []Setting{
	{Name: "kernel", Short: "k", Group: GroupKernel, Field: "Kernel.Name", Value: "KERNEL", Common: true, Shapes: true, Help: "kernel: a Python file (embed.py, or embed.py:FUNCTION), exec:COMMAND, openai:URL (a model server), serve:COMMAND (a model server that gpurun starts), a program (./kernel), a built-in (echo), or a name in $GPURUN_PLUGIN_PATH"},
	{Name: "kernel-config", Group: GroupKernel, Kind: Document, Value: "FILE", Endings: []string{"json"}, Path: unlessJSON, Common: true, Shapes: true, Help: "kernel configuration: a JSON file or inline JSON"},
	{Name: "steps", Group: GroupKernel, Kind: Steps, Place: OnlyInFile, Excludes: []string{"kernel", "kernel-config"}, Shapes: true, Help: "a chain of kernels instead of kernel: each processes the results of the previous one"},
	{Name: "step", Group: GroupKernel, Kind: Repeated, Place: NotInFile, Instead: "steps", Value: "KERNEL", Shapes: true, Help: "run a chain of kernels instead of a single one (repeatable): each KERNEL processes the results of the previous one on the same GPU"},
	{Name: "step-config", Group: GroupKernel, Kind: Repeated, Place: NotInFile, Instead: "steps", Value: "STEP=JSON", Shapes: true, Help: "configuration of a step: STEP=JSON or STEP=FILE, where STEP is its name or its number, counting from 1"},
	{Name: "python", Group: GroupKernel, Field: "Kernel.Python", Value: "PATH", Path: unlessCommand, Help: "interpreter for Python kernels (default: that of the active venv or conda environment, else python3)"},
	{Name: "io-workers", Group: GroupKernel, Kind: Int, Field: "Kernel.IOWorkers", Help: "maximum number of threads that run a Python kernel's prepare(batch) ahead of process (default 4), or of processes if it defines setup_prepare (default the worker's share of the cores)"},
	{Name: "start", Group: GroupKernel, Field: "Kernel.Start", Unset: "fork", Words: []string{"fork", "fresh"}, Only: true, Help: "how the interpreters of a Python kernel start: fork them from one that has imported the kernel's file, or fresh: let each import it (default fork)"},
	{Name: "keep-warm", Group: GroupKernel, Kind: Duration, Field: "Kernel.KeepWarm", Alone: "10m", Value: "TIME", Help: "keep an interpreter that has imported the packages of a Python kernel for this TIME after its last use (10m if none is given), so that the next job or try starts in a second; see gpurun warm"},
	{Name: "exec-mode", Group: GroupKernel, Field: "Kernel.ExecMode", Unset: "batch", Words: []string{"batch", "stream", "per-record"}, Only: true, Shapes: true, Help: "how exec: runs its program: batch (one process per batch), stream (one for all batches), per-record (default batch)"},
	{Name: "exec-id", Group: GroupKernel, Field: "Kernel.ExecID", Value: "MEMBER", Help: "check that each line an exec: program prints repeats this MEMBER (a string or number) of its record"},
	{Name: "nan", Group: GroupKernel, Field: "Kernel.NaN", Unset: "null", Words: []string{"null", "error"}, Only: true, Shapes: true, Help: "handle NaN and infinity, which JSON lacks: null replaces them, error fails their records (default null)"},

	{Name: "fetch", Group: GroupFetch, Kind: Repeated, Field: "Fetch.Members", Value: "NAME=FIELD", Shapes: true, Help: "read the file that member FIELD of each record names, by path, URL or data: URI; the kernel gets its bytes as NAME (repeatable)"},
	{Name: "fetch-root", Group: GroupFetch, Field: "Fetch.Root", Value: "FOLDER", Path: whole, Shapes: true, Help: "FOLDER that the paths of files to fetch are relative to and must not leave (default: that of the input files, or the current one for a stream)"},
	{Name: "fetch-max-bytes", Group: GroupFetch, Kind: Size, Field: "Fetch.MaxBytes", Default: "64MiB", Least: 1, Shapes: true, Help: "maximum size of a fetched file; a larger one fails its record"},
	{Name: "fetch-concurrency", Group: GroupFetch, Kind: Int, Field: "Fetch.Concurrency", Default: "64", Least: 1, Help: "files that each worker fetches at a time"},
	{Name: "fetch-per-host", Group: GroupFetch, Kind: Int, Field: "Fetch.PerHost", Default: "32", Least: 1, Help: "files that each worker fetches at a time from one host"},
	{Name: "fetch-timeout", Group: GroupFetch, Kind: Duration, Field: "Fetch.Timeout", Default: "1m0s", Least: 1, Help: "time limit for a file, retries included"},
	{Name: "fetch-retries", Group: GroupFetch, Kind: Int, Field: "Fetch.Retries", Default: "4", Zero: -1, Help: "retry a fetch up to this many times after a failure that may pass"},
	{Name: "fetch-allow-private", Group: GroupFetch, Kind: Bool, Field: "Fetch.AllowPrivate", Help: "let records name URLs of private and local addresses, and use the proxy that the environment names"},

	{Name: "output", Short: "o", Group: GroupOutput, Field: "Output.Path", Value: "FILE", Path: whole, Common: true, Help: "output FILE (.jsonl, .jsonl.gz, .jsonl.zst, .parquet, .arrow), FOLDER/ for output in parts with a manifest, or - for standard output"},
	{Name: "output-format", Group: GroupOutput, Field: "Output.Format", Value: "FORMAT", Words: encode.Names(), Only: true, Shapes: true, Help: "FORMAT of the output: " + strings.Join(encode.Names(), ", ") + " (default: what the name of the output says, else jsonl)"},
	{Name: "column", Group: GroupOutput, Kind: Repeated, Field: "Output.Arrays", Value: "NAME=FILE.npy", Path: afterName, Shapes: true, Help: "store column NAME of the results as a NumPy array and leave it out of the lines: NAME=FILE.npy, or NAME=FILE.f16.npy in half precision (repeatable); row i belongs to line i"},
	{Name: "errors", Group: GroupOutput, Field: "Output.Errors", Value: "FILE", Endings: []string{"jsonl"}, Path: whole, Common: true, Shapes: true, Help: "write failed records to this FILE instead of the output"},
	{Name: "keep", Group: GroupOutput, Kind: List, Field: "Output.Keep", Common: true, Shapes: true, Help: "keep only these members of the input records, in addition to the kernel's results: id,url"},
	{Name: "source-field", Group: GroupOutput, Field: "Output.SourceField", Shapes: true, Help: "add a member of this name to every result: the input file and line, or row, of its record"},
	{Name: "force", Group: GroupOutput, Kind: Bool, Field: "Output.Force", Common: true, Help: "overwrite an existing output"},
	{Name: "part-bytes", Group: GroupOutput, Kind: Size, Field: "Output.PartBytes", Default: "64MiB", Least: 1, Help: "in an output FOLDER/, start a new part once the current one reaches this size; parts end at chunk boundaries"},

	{Name: "gpus", Group: GroupDevices, Field: "Devices.GPUs", Default: "all", Least: 1, Try: []string{"all", "cpu:1", "cpu:2", "cpu:4"}, Common: true, Help: "devices: all, indices (0,2 or 0-3), UUIDs, MIG instances (2:0), or cpu:4 for four CPU workers"},
	{Name: "gpus-per-worker", Group: GroupDevices, Kind: Int, Field: "Devices.GPUsPerWorker", Default: "1", Least: 1, Help: "GPUs per worker, for models that span several GPUs"},
	{Name: "workers-per-gpu", Group: GroupDevices, Kind: Int, Field: "Devices.WorkersPerGPU", Default: "auto", Least: 1, Words: []string{"auto"}, Try: []string{"auto", "1", "2", "4"}, Help: "workers per GPU; auto starts with one and adds more while that makes the GPU faster and fits in memory"},
	{Name: "stagger", Group: GroupDevices, Kind: Bool, Field: "Devices.Stagger", Default: "auto", Words: []string{"auto"}, Help: "let the first worker load its model before the others start, and stop if it fails; auto: if the files are on a network file system"},
	{Name: "pin", Group: GroupDevices, Field: "Devices.PinUUID", Default: "index", Words: []string{"index", "uuid"}, Only: true, Help: "set CUDA_VISIBLE_DEVICES by index or uuid; some frameworks do not accept UUIDs"},
	{Name: "profile", Group: GroupDevices, Field: "Devices.Profile", Default: "datacenter", Words: []string{"datacenter", "workstation"}, Only: true, Help: "when to slow down a hot GPU: datacenter, or workstation (earlier)"},
	{Name: "monitor-config", Group: GroupDevices, Value: "FILE", Endings: []string{"yaml", "yml"}, Path: whole, Help: "YAML FILE with the monitor's temperature, memory and timing thresholds"},
	{Name: "no-monitor", Group: GroupDevices, Kind: Bool, Field: "Devices.NoMonitor", Help: "do not monitor temperature and memory, and never slow down a GPU"},
	{Name: "no-affinity", Group: GroupDevices, Kind: Bool, Field: "Devices.NoAffinity", Help: "let workers use all CPUs instead of only those close to their GPU"},

	{Name: "batch-size", Group: GroupBatching, Kind: Int, Field: "Batching.Size", Least: 1, Words: []string{"auto"}, AutoField: "Batching.Auto", Common: true, Help: "records per batch, or auto to find the fastest size in the first 30 s (default: what the kernel asks for, else 128)"},
	{Name: "batch-bytes", Group: GroupBatching, Kind: Size, Field: "Batching.Bytes", Default: "32MiB", Least: 1, Help: "maximum bytes per batch, so that long records do not exhaust memory"},
	{Name: "group-by", Group: GroupBatching, Field: "Batching.GroupBy", Value: "MEMBER", Help: "form batches of records with similar size of this MEMBER, which saves padding; the output stays in input order; none: in input order, even if the kernel asks for groups"},
	{Name: "batch-cost", Group: GroupBatching, Kind: Size, Field: "Batching.Cost", Help: "maximum size of a batch that group-by forms, padding included (records times the size of the largest; 0: no limit)"},
	{Name: "chunks-per-gpu", Group: GroupBatching, Kind: Int, Field: "Batching.ChunksPerGPU", Default: "16", Least: 1, Help: "chunks per worker; more balance unequal GPUs better, 1 splits statically into ceil(n/workers)"},

	{Name: "format", Group: GroupInput, Field: "Format", Value: "FORMAT", Words: []string{"openai-batch"}, Only: true, Shapes: true, Help: "FORMAT of the lines of input and output: openai-batch for requests and results of OpenAI's batch files; see gpurun manual llm#batch-files (default: openai-batch for openai: and serve: without a prompt, else any JSON)"},
	{Name: "input-format", Group: GroupInput, Field: "Input.Format", Words: decode.Names(), Only: true, Shapes: true, Help: "format of the input instead of recognizing it: " + strings.Join(decode.Names(), ", ")},
	{Name: "columns", Group: GroupInput, Kind: List, Field: "Input.Columns", Shapes: true, Help: "of a Parquet or Arrow output: its columns, in this order, with types if you like: id:int64,day:date,embedding; otherwise: read only these columns of Parquet, Arrow and CSV files, in CSV files with types"},
	{Name: "limit", Group: GroupInput, Kind: Int, Field: "Input.Limit", Common: true, Shapes: true, Help: "process at most this many records (0: all)"},
	{Name: "offset", Group: GroupInput, Kind: Int, Field: "Input.Offset", Shapes: true, Help: "skip this many records first"},
	{Name: "bad-input", Group: GroupInput, Field: "Input.SkipBad", Default: "fail", Words: []string{"fail", "skip"}, Only: true, Help: "what to do with a damaged file (truncated or corrupt gzip or zstd): fail, or skip the rest of it"},
	{Name: "reprocess", Group: GroupInput, Kind: Bool, Field: "Input.Reprocess", Shapes: true, Help: "process input records that carry an \"_error\" and remove it, instead of passing them through"},
	{Name: "max-record-bytes", Group: GroupInput, Kind: Size, Field: "Input.MaxRecordBytes", Default: "16MiB", Least: 1, Shapes: true, Help: "maximum record length; longer lines are kept as failed records"},
	{Name: "no-validate", Group: GroupInput, Kind: Bool, Field: "Input.NoValidate", Shapes: true, Help: "do not check that each line is valid JSON; saves about 0.2 s of CPU time per GB"},
	{Name: "split", Group: GroupInput, Field: "Input.Split", Default: "auto", Words: []string{"auto", "records", "bytes"}, Only: true, Help: "split a file by records (equal counts, counts the input first) or bytes (starts immediately); auto: by records up to 16 GiB"},
	{Name: "chunk-records", Group: GroupInput, Kind: Int, Field: "Input.ChunkRecords", Help: "records per chunk of a stream or a compressed file (default 16 batches)"},
	{Name: "flush", Group: GroupInput, Kind: Duration, Field: "Input.Flush", Default: "1s", Least: 1, Help: "maximum time that a record of a stream waits for its chunk to fill"},

	{Name: "fresh", Group: GroupResume, Kind: Bool, Field: "Resume.Fresh", Help: "start over instead of resuming an interrupted job"},
	{Name: "accept-changes", Group: GroupResume, Kind: List, Field: "Resume.AcceptChanges", Try: []string{"kernel", "config", "kernel,config"}, Help: "resume even if these have changed: kernel,config"},
	{Name: "spool", Group: GroupResume, Kind: Bool, Field: "Resume.Spool", Help: "copy a streamed input to the job folder as fast as it arrives, and resume from that copy"},
	{Name: "max-time", Group: GroupResume, Kind: Duration, Field: "Resume.MaxTime", Help: "stop after this time, for example before a scheduler's limit; run the same command to resume (0: no limit)"},
	{Name: "max-requests", Group: GroupResume, Kind: Int, Field: "Resume.MaxRequests", Help: "stop when the job has sent this many requests, retries included, in all of its runs; raise it and run the same command to resume (0: no limit)"},
	{Name: "max-tokens-total", Group: GroupResume, Kind: Int, Field: "Resume.MaxTokens", Help: "stop when the job's answers have used this many tokens in all of its runs; requests in flight are still answered (0: no limit)"},
	{Name: "drain-timeout", Group: GroupResume, Kind: Duration, Field: "Resume.DrainTimeout", Default: "20s", Least: 1, Help: "when the job stops (signal, cancel, max-time, halt), wait this long for batches in flight; the next run computes the others"},
	{Name: "checkpoint", Group: GroupResume, Kind: Duration, Field: "Resume.Checkpoint", Default: "30s", Least: 1, Help: "commit each worker's results at least this often, which ends a chunk; a kill loses at most this much work per worker"},
	{Name: "work-dir", Group: GroupResume, Field: "Resume.WorkDir", Value: "FOLDER", Path: whole, Help: "FOLDER for the job folder instead of the output's; several jobs can share it; a retry needs the same"},
	{Name: "clean", Group: GroupResume, Kind: Bool, Field: "Resume.Clean", Help: "remove the job folder if every record succeeds (exit status 0)"},

	{Name: "timeout", Group: GroupFailures, Kind: Duration, Field: "Failures.Timeout", Least: 1, Help: "time limit per batch, including the first, or per record if the kernel computes records one by one; a kernel that exceeds it is killed and the batch is bisected to isolate the record that hangs (default 20 times the slowest good one, at least 1m for a batch, 5m until enough have been measured, and 10m for a record; for openai: and serve:, their own timeout)"},
	{Name: "open-timeout", Group: GroupFailures, Kind: Duration, Field: "Failures.OpenTimeout", Default: "30m0s", Least: 1, Help: "time limit for a kernel to load its model, and for its first batch unless timeout is set"},
	{Name: "retries", Group: GroupFailures, Kind: Int, Field: "Failures.Retries", Default: "3", Zero: -1, Help: "retry up to this many times before marking records as failed: a chunk whose worker was lost, and a request that a model server refuses or does not answer"},
	{Name: "halt", Group: GroupFailures, Field: "Failures.Halt", Default: "never", Try: []string{"never", "fail=1", "fail=100", "fail=5%"}, Help: "stop when this many records have failed: never, fail=100, fail=5%; run the same command to resume"},
	{Name: "give-up", Group: GroupFailures, Field: "Failures.GiveUpMark", Default: "stop", Words: []string{"stop", "mark"}, Only: true, Help: "when no usable device remains: stop (run the same command to resume), or mark the remaining records as failed"},
	{Name: "truncated", Group: GroupFailures, Words: []string{"keep", "fail"}, Only: true, Shapes: true, Help: "what becomes of an answer of openai: or serve: that the server cut off at a limit of tokens: keep, or fail its record (default keep)"},

	{Name: "log-level", Group: GroupDisplay, Field: "Display.LogLevel", Default: "info", Words: []string{"debug", "info", "warn", "error"}, Only: true, Help: "log level of the workers: debug, info, warn, error"},
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
