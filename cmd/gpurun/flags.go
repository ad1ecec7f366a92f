package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
)

// jobFlags are the flags that say what a job is; run and plan share them.
type jobFlags struct {
	config       orchestrator.Config
	kernelConfig string
	steps        []string
	stepConfigs  []string
	pin          string
	workers      string
	monitor      string
	split        string
	batchBytes   byteSize
	maxRecord    byteSize
	partBytes    byteSize
	batchSize    batchSize
}

// register adds all of them.
func (f *jobFlags) register(flags *pflag.FlagSet) {
	f.registerKernel(flags)
	f.registerDevices(flags)
	f.registerBatches(flags)
	f.registerRecords(flags)
}

func (f *jobFlags) registerKernel(flags *pflag.FlagSet) {
	c := &f.config
	flags.StringVarP(&c.Kernel, "kernel", "k", "", "the kernel: a Python file (embed.py), exec:COMMAND, a program (./kernel), a built-in (echo), or a name in $GPURUN_PLUGIN_PATH")
	flags.StringVar(&f.kernelConfig, "kernel-config", "", "the kernel's configuration: a JSON `FILE`, or the JSON itself")
	flags.StringArrayVar(&f.steps, "step", nil, "a kernel of a chain, instead of -k: each `KERNEL` gets what the one before it made of the records, on the same GPU")
	flags.StringArrayVar(&f.stepConfigs, "step-config", nil, "the configuration of a step: `STEP=JSON` or STEP=FILE; STEP is its name, or its number from 1")
	flags.StringVar(&c.ExecMode, "exec-mode", "", "how exec: runs its program: stream (one process for all; default), batch (one per batch), per-record")
	flags.StringVar(&c.ExecID, "exec-id", "", "a `MEMBER` of each record (a string or number) that an exec: program repeats in its answer: every line is then checked to answer its record")
	flags.StringVar(&c.Python, "python", "", "the interpreter of Python kernels: a `PATH` (default the active venv's or conda's, else python3)")
	flags.IntVar(&c.IOWorkers, "io-workers", 0, "threads, at most, that run a Python kernel's prepare(batch) ahead of process (default 4)")
	flags.StringVar(&c.NaN, "nan", "", "what NaN and infinity become, which JSON does not have: null (default), or error, to fail their records")
}

func (f *jobFlags) registerDevices(flags *pflag.FlagSet) {
	c := &f.config
	flags.StringVar(&c.GPUs, "gpus", "all", "devices: all, indices (0,2 or 0-3), UUIDs, MIG instances (2:0), or cpu:4 for four CPU workers; --num-gpus is for a number of GPUs")
	flags.IntVar(&c.GPUsPerWorker, "gpus-per-worker", 1, "GPUs for each worker, for a model that is spread over several")
	flags.StringVar(&f.workers, "workers-per-gpu", "1", "workers on each GPU; 2 to 4 help small models, whose launches leave gaps; auto: as many as there are cores for, and memory")
	flags.BoolVar(&c.Stagger, "stagger", false, "let the first worker load its model alone: if it cannot, the others do not try")
	flags.StringVar(&f.pin, "pin", "index", "pin workers by index or uuid in CUDA_VISIBLE_DEVICES; some frameworks choke on UUIDs")
	flags.StringVar(&c.Profile, "profile", "datacenter", "how early a hot GPU is slowed: datacenter, or workstation (earlier)")
	flags.StringVar(&f.monitor, "monitor-config", "", "temperatures, memory shares and times of the monitor: a YAML `FILE`")
	flags.BoolVar(&c.NoMonitor, "no-monitor", false, "do not watch temperature and memory, and slow nothing down")
	flags.BoolVar(&c.NoAffinity, "no-affinity", false, "let workers run on all CPUs, not only on those near their GPU")
}

func (f *jobFlags) registerBatches(flags *pflag.FlagSet) {
	c := &f.config
	f.batchBytes, f.maxRecord = orchestrator.DefaultBatchBytes, orchestrator.DefaultMaxRecordBytes
	f.batchSize.records = orchestrator.DefaultBatchSize
	flags.Var(&f.batchSize, "batch-size", "records in a batch (unless given, what the kernel wishes for), or auto, to find the fastest in the first 30 s")
	flags.Var(&f.batchBytes, "batch-bytes", "bytes in a batch at the most, so that long records do not fill the memory")
	flags.IntVar(&c.ChunksPerGPU, "chunks-per-gpu", orchestrator.DefaultChunksPerGPU, "chunks per worker: more balance unequal GPUs better; 1 is the static split ceil(n/workers)")
	flags.Var(&f.maxRecord, "max-record-bytes", "a longer line is kept as a failed record")
}

func (f *jobFlags) registerRecords(flags *pflag.FlagSet) {
	c := &f.config
	flags.StringVar(&f.split, "split", "auto", "cut a file by records (equal counts, counted first) or bytes (at once); auto: records up to 16 GiB")
	flags.Int64Var(&c.ChunkRecords, "chunk-records", 0, "records in a chunk of a stream (default 16 batches)")
	flags.DurationVar(&c.Flush, "flush", orchestrator.DefaultFlush, "how long a record of a stream may wait for its chunk to fill")
	flags.Int64Var(&c.Limit, "limit", 0, "use only so many records (0: all)")
	flags.Int64Var(&c.Offset, "offset", 0, "pass over so many records first")
	flags.StringSliceVar(&c.Keep, "keep", nil, "keep only these members of the input records, beside the kernel's own: id,url")
	flags.BoolVar(&c.NoValidate, "no-validate", false, "trust the input to be valid JSON instead of checking each line; saves about 0.2 s of CPU a GB")
	flags.BoolVar(&c.Reprocess, "reprocess", false, "compute records that come in with an \"_error\" too, and take it off, instead of passing them on")
}

// minCheckpoint: with shorter ones a job would do little else.
const minCheckpoint = time.Second

// resolve makes a Config of the flags.
func (f *jobFlags) resolve(cmd *cobra.Command) (orchestrator.Config, error) {
	if err := fromEnvironment(cmd); err != nil {
		return f.config, err
	}
	c := f.config
	for _, one := range []struct {
		flag  string
		value int64
	}{
		{"gpus-per-worker", int64(c.GPUsPerWorker)},
		{"batch-size", int64(f.batchSize.records)}, {"batch-bytes", int64(f.batchBytes)},
		{"chunks-per-gpu", int64(c.ChunksPerGPU)}, {"max-record-bytes", int64(f.maxRecord)},
		{"part-bytes", int64(f.partBytes)},
		{"open-timeout", int64(c.OpenTimeout)},
		{"checkpoint", int64(c.Checkpoint)}, {"drain-timeout", int64(c.DrainTimeout)},
	} {
		if one.value <= 0 && cmd.Flags().Lookup(one.flag) != nil {
			return c, usagef("--%s must be at least 1, not %s", one.flag, cmd.Flags().Lookup(one.flag).Value)
		}
	}
	if cmd.Flags().Lookup("checkpoint") != nil && c.Checkpoint < minCheckpoint {
		return c, usagef("--checkpoint %s is too short: at least %s, since each ends a chunk and begins another", c.Checkpoint, minCheckpoint)
	}
	if cmd.Flags().Changed("timeout") && c.Timeout <= 0 {
		return c, usagef("--timeout must be longer than 0s, not %s", c.Timeout)
	}
	if cmd.Flags().Changed("gpus") && strings.TrimSpace(c.GPUs) == "" {
		return c, usagef("--gpus is empty: name devices, or write all")
	}
	if err := f.resolveDevices(&c); err != nil {
		return c, err
	}
	if c.AutoBatch = f.batchSize.auto; cmd.Flags().Changed("batch-size") && !c.AutoBatch {
		c.BatchSize = f.batchSize.records
	}
	c.BatchBytes, c.PartBytes = int(f.batchBytes), int64(f.partBytes)
	if cmd.Flags().Changed("max-record-bytes") {
		c.MaxRecordBytes = int64(f.maxRecord)
	}
	if f.split != "auto" && f.split != "" {
		c.Split = chunk.Split(f.split)
	}
	return f.resolveKernel(c)
}

// resolveKernel reads the configuration of the kernel, or of the steps.
func (f *jobFlags) resolveKernel(c orchestrator.Config) (orchestrator.Config, error) {
	var err error
	if len(f.steps) > 0 || len(f.stepConfigs) > 0 {
		c.Kernel, c.KernelConfig, err = chainOf(c.Kernel, f.kernelConfig, f.steps, f.stepConfigs)
		return c, err
	}
	c.KernelConfig, err = readConfig("--kernel-config", f.kernelConfig)
	return c, err
}

// resolveDevices takes the flags of devices that are more than a value.
func (f *jobFlags) resolveDevices(c *orchestrator.Config) (err error) {
	switch f.pin {
	case "index":
	case "uuid":
		c.PinUUID = true
	default:
		return usagef("--pin %q is neither index nor uuid", f.pin)
	}
	if f.workers == "auto" {
		c.WorkersPerGPU = orchestrator.AutoWorkers
	} else if c.WorkersPerGPU, err = strconv.Atoi(f.workers); err != nil || c.WorkersPerGPU < 1 {
		return usagef("--workers-per-gpu must be at least 1, or auto, not %s", f.workers)
	}
	if f.monitor == "" {
		return nil
	}
	c.Monitor, err = gpu.LoadConfig(f.monitor)
	return err
}

// readConfig takes JSON, or the name of a file that holds it.
func readConfig(flag, value string) ([]byte, error) {
	if value == "" {
		return nil, nil
	}
	if json.Valid([]byte(value)) {
		return []byte(value), nil
	}
	if strings.HasPrefix(strings.TrimSpace(value), "{") {
		return nil, usagef("%s is no valid JSON: %s", flag, value)
	}
	data, err := os.ReadFile(value)
	if err != nil {
		return nil, usagef("%s: %w", flag, err)
	}
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	if !json.Valid(data) {
		return nil, usagef("%s: %s is no valid JSON", flag, value)
	}
	return data, nil
}

// reads are the files, beside the input, that the job depends on: nothing that it writes
// may take their place. A kernel that cannot be found is reported later.
func (f *jobFlags) reads(c orchestrator.Config) (files []orchestrator.NamedFile) {
	add := func(name, path string) {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			files = append(files, orchestrator.NamedFile{Name: name, Path: path})
		}
	}
	if r, err := resolver(plugins.PythonOptions{}); err == nil && c.Kernel != "" {
		named, _ := r.Resolve(c.Kernel, nil)
		for _, path := range named.Files {
			add("kernel", path)
		}
	}
	add("kernel configuration", f.kernelConfig)
	for _, config := range f.stepConfigs {
		_, value, _ := strings.Cut(config, "=")
		add("kernel configuration", value)
	}
	add("monitor configuration", f.monitor)
	return files
}

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// batchSize is a flag for a number of records, or auto.
type batchSize struct {
	records int
	auto    bool
}

func (b *batchSize) Type() string { return "int|auto" }

func (b *batchSize) String() string {
	if b.auto {
		return "auto"
	}
	return strconv.Itoa(b.records)
}

func (b *batchSize) Set(text string) error {
	if b.auto = text == "auto"; b.auto {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%q is neither a number nor auto", text)
	}
	b.records = n
	return nil
}

// byteSize is a flag for a number of bytes: 4096, 64K, 32MiB, 1G.
type byteSize int64

func (b *byteSize) Type() string { return "size" }

func (b *byteSize) String() string {
	n := int64(*b)
	for _, unit := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.size && n%unit.size == 0 {
			return strconv.FormatInt(n/unit.size, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}

func (b *byteSize) Set(text string) error {
	digits := strings.TrimRight(text, "KMGTiBkmgtb")
	unit := strings.ToUpper(strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(text[len(digits):]), "B"), "I"))
	factor, ok := map[string]int64{"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[unit]
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || !ok || n < 0 || n > (1<<62)/factor {
		return fmt.Errorf("%q is no size; write 4096, 64K, 32MiB or 1G", text)
	}
	*b = byteSize(n * factor)
	return nil
}

// parseHalt reads never, fail=N and fail=P%.
func parseHalt(text string) (orchestrator.Halt, error) {
	var halt orchestrator.Halt
	if text == "never" {
		return halt, nil
	}
	number, ok := strings.CutPrefix(text, "fail=")
	percent, isPercent := strings.CutSuffix(number, "%")
	var err error
	if isPercent {
		halt.Percent, err = strconv.ParseFloat(percent, 64)
	} else {
		halt.Records, err = strconv.ParseInt(number, 10, 64)
	}
	if !ok || err != nil || halt.Percent < 0 || halt.Percent > 100 || halt.Records < 0 || halt == (orchestrator.Halt{}) {
		return halt, usagef("--halt %q is none of never, fail=N, fail=P%%", text)
	}
	return halt, nil
}

// checkLogLevel refuses what slog would not know.
func checkLogLevel(level string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return usagef("--log-level %q is none of debug, info, warn, error", level)
	}
	return nil
}
