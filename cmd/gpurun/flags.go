package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/decode"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/openai"
	"github.com/gpurun/gpurun/worker/fetch"
)

// jobFlags are the flags that define a job; run and plan share them.
type jobFlags struct {
	config       orchestrator.Config
	kernelConfig string
	truncated    string
	steps        []string
	stepConfigs  []string
	pin          string
	workers      string
	monitor      string
	split        string
	badInput     string
	batchBytes   byteSize
	batchCost    byteSize
	maxRecord    byteSize
	partBytes    byteSize
	fetch        []string
	arrays       []string
	fetchMax     byteSize
	batchSize    batchSize
}

// register adds all job flags.
func (f *jobFlags) register(flags *pflag.FlagSet) {
	f.registerKernel(flags)
	f.registerDevices(flags)
	f.registerBatches(flags)
	f.registerRecords(flags)
	f.registerFetchFields(flags)
	f.registerFetch(flags)
}

func (f *jobFlags) registerKernel(flags *pflag.FlagSet) {
	c := &f.config
	flags.StringVarP(&c.Kernel.Name, "kernel", "k", "", "kernel: a Python file (embed.py, or embed.py:FUNCTION), exec:COMMAND, openai:URL (a model server), serve:COMMAND (a model server that gpurun starts), a program (./kernel), a built-in (echo), or a name in $GPURUN_PLUGIN_PATH")
	flags.StringVar(&f.kernelConfig, "kernel-config", "", "kernel configuration: a JSON `FILE` or inline JSON")
	flags.StringArrayVar(&f.steps, "step", nil, "run a chain of kernels instead of -k (repeatable): each `KERNEL` processes the results of the previous one on the same GPU")
	flags.StringArrayVar(&f.stepConfigs, "step-config", nil, "configuration of a step: `STEP=JSON` or STEP=FILE, where STEP is its name or its number, counting from 1")
	flags.StringVar(&c.Kernel.ExecMode, "exec-mode", "", "how exec: runs its program: batch (one process per batch), stream (one for all batches), per-record (default batch)")
	flags.StringVar(&c.Kernel.ExecID, "exec-id", "", "check that each line an exec: program prints repeats this `MEMBER` (a string or number) of its record")
	flags.StringVar(&c.Kernel.Python, "python", "", "`PATH` of the interpreter for Python kernels (default: that of the active venv or conda environment, else python3)")
	flags.IntVar(&c.Kernel.IOWorkers, "io-workers", 0, "maximum number of threads that run a Python kernel's prepare(batch) ahead of process (default 4), or of processes if it defines setup_prepare (default the worker's share of the cores)")
	flags.StringVar(&c.Kernel.NaN, "nan", "", "handle NaN and infinity, which JSON lacks: null replaces them, error fails their records (default null)")
}

func (f *jobFlags) registerDevices(flags *pflag.FlagSet) {
	c := &f.config
	flags.StringVar(&c.Devices.GPUs, "gpus", "all", "devices: all, indices (0,2 or 0-3), UUIDs, MIG instances (2:0), or cpu:4 for four CPU workers; to request a number of GPUs, use --num-gpus")
	flags.IntVar(&c.Devices.GPUsPerWorker, "gpus-per-worker", 1, "GPUs per worker, for models that span several GPUs")
	flags.StringVar(&f.workers, "workers-per-gpu", "auto", "workers per GPU; auto starts with one and adds more while that makes the GPU faster and fits in memory")
	flags.Var((*staggerFlag)(&c.Devices.Stagger), "stagger", "let the first worker load its model before the others start, and stop if it fails; auto: if the files are on a network file system")
	flags.Lookup("stagger").NoOptDefVal = "true"
	flags.StringVar(&f.pin, "pin", "index", "set CUDA_VISIBLE_DEVICES by index or uuid; some frameworks do not accept UUIDs")
	flags.StringVar(&c.Devices.Profile, "profile", "datacenter", "when to slow down a hot GPU: datacenter, or workstation (earlier)")
	flags.StringVar(&f.monitor, "monitor-config", "", "YAML `FILE` with the monitor's temperature, memory and timing thresholds")
	flags.BoolVar(&c.Devices.NoMonitor, "no-monitor", false, "do not monitor temperature and memory, and never slow down a GPU")
	flags.BoolVar(&c.Devices.NoAffinity, "no-affinity", false, "let workers use all CPUs instead of only those close to their GPU")
}

func (f *jobFlags) registerBatches(flags *pflag.FlagSet) {
	c := &f.config
	f.batchBytes, f.maxRecord = orchestrator.DefaultBatchBytes, orchestrator.DefaultMaxRecordBytes
	f.batchSize.records = orchestrator.DefaultBatchSize
	flags.Var(&f.batchSize, "batch-size", "records per batch, or auto to find the fastest size in the first 30 s; a size that the kernel asks for replaces the default")
	flags.Var(&f.batchBytes, "batch-bytes", "maximum bytes per batch, so that long records do not exhaust memory")
	flags.StringVar(&c.Batching.GroupBy, "group-by", "", "form batches of records with similar size of this `MEMBER`, which saves padding; the output stays in input order; none: in input order, even if the kernel asks for groups")
	flags.Var(&f.batchCost, "batch-cost", "with --group-by: maximum size of a batch, padding included (records times the size of the largest; 0: no limit)")
	flags.IntVar(&c.Batching.ChunksPerGPU, "chunks-per-gpu", orchestrator.DefaultChunksPerGPU, "chunks per worker; more balance unequal GPUs better, 1 splits statically into ceil(n/workers)")
	flags.Var(&f.maxRecord, "max-record-bytes", "maximum record length; longer lines are kept as failed records")
}

func (f *jobFlags) registerRecords(flags *pflag.FlagSet) {
	c := &f.config
	flags.StringVar(&f.split, "split", "auto", "split a file by records (equal counts, counts the input first) or bytes (starts immediately); auto: by records up to 16 GiB")
	flags.Int64Var(&c.Input.ChunkRecords, "chunk-records", 0, "records per chunk of a stream or a compressed file (default 16 batches)")
	flags.DurationVar(&c.Input.Flush, "flush", orchestrator.DefaultFlush, "maximum time that a record of a stream waits for its chunk to fill")
	flags.StringVar(&c.Format, "format", "", "`FORMAT` of the lines of input and output: openai-batch for requests and results of OpenAI's batch files; see gpurun manual llm#batch-files (default: openai-batch for openai: and serve: without a prompt, else any JSON)")
	f.registerTables(flags)
	flags.StringVar(&f.badInput, "bad-input", "fail", "what to do with a damaged file (truncated or corrupt gzip or zstd): fail, or skip the rest of it")
	flags.Int64Var(&c.Input.Limit, "limit", 0, "process at most this many records (0: all)")
	flags.Int64Var(&c.Input.Offset, "offset", 0, "skip this many records first")
	flags.StringVar(&c.Output.SourceField, "source-field", "", "add a member of this name to every result: the input file and line, or row, of its record")
	flags.StringSliceVar(&c.Output.Keep, "keep", nil, "keep only these members of the input records, in addition to the kernel's results: id,url")
	flags.BoolVar(&c.Input.NoValidate, "no-validate", false, "do not check that each line is valid JSON; saves about 0.2 s of CPU time per GB")
	flags.BoolVar(&c.Input.Reprocess, "reprocess", false, "process input records that carry an \"_error\" and remove it, instead of passing them through")
}

// registerTables registers how tables are read.
func (f *jobFlags) registerTables(flags *pflag.FlagSet) {
	flags.StringVar(&f.config.Input.Format, "input-format", "", "format of the input instead of recognizing it: "+strings.Join(decode.Names(), ", "))
	flags.StringSliceVar(&f.config.Input.Columns, "columns", nil, "with a Parquet output: its columns, in this order, with types if you like: id:int64,day:date,embedding; otherwise: read only these columns of Parquet and CSV files, in CSV files with types")
}

// registerFetchFields adds the flag that says what is fetched.
func (f *jobFlags) registerFetchFields(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.fetch, "fetch", nil, "read the file that member FIELD of each record names, by path, URL or data: URI; the kernel gets its bytes as NAME: `NAME=FIELD` (repeatable)")
}

// registerFetch adds the flags that say how files are fetched.
func (f *jobFlags) registerFetch(flags *pflag.FlagSet) {
	c := &f.config
	f.fetchMax = fetch.DefaultMaxBytes
	flags.StringVar(&c.Fetch.Root, "fetch-root", "", "`FOLDER` that the paths of --fetch are relative to and must not leave (default: that of the input files, or the current one for a stream)")
	flags.Var(&f.fetchMax, "fetch-max-bytes", "maximum size of a fetched file; a larger one fails its record")
	flags.IntVar(&c.Fetch.Concurrency, "fetch-concurrency", fetch.DefaultConcurrency, "files that each worker fetches at a time")
	flags.IntVar(&c.Fetch.PerHost, "fetch-per-host", fetch.DefaultPerHost, "files that each worker fetches at a time from one host")
	flags.DurationVar(&c.Fetch.Timeout, "fetch-timeout", fetch.DefaultTimeout, "time limit for a file, retries included")
	flags.IntVar(&c.Fetch.Retries, "fetch-retries", fetch.DefaultRetries, "retry a fetch up to this many times after a failure that may pass")
	flags.BoolVar(&c.Fetch.AllowPrivate, "fetch-allow-private", false, "let records name URLs of private and local addresses, and use the proxy that the environment names")
}

// resolveFetch parses --fetch.
func (f *jobFlags) resolveFetch(cmd *cobra.Command, c *orchestrator.Config) error {
	for _, text := range f.fetch {
		name, field, found := strings.Cut(text, "=")
		if !found || name == "" || field == "" {
			return usagef("--fetch %q: must be NAME=FIELD, for example --fetch image=url", text)
		}
		c.Fetch.Members = append(c.Fetch.Members, orchestrator.FetchMember{Name: name, Field: field})
	}
	if cmd.Flags().Changed("fetch-max-bytes") {
		c.Fetch.MaxBytes = int64(f.fetchMax)
	}
	if c.Fetch.Retries == 0 {
		c.Fetch.Retries = -1 // zero means the default in Config
	}
	if cmd.Flags().Lookup("fetch") == nil || len(f.fetch) > 0 {
		return nil
	}
	for _, name := range []string{"fetch-root", "fetch-max-bytes", "fetch-concurrency", "fetch-per-host", "fetch-timeout", "fetch-retries", "fetch-allow-private"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s needs --fetch NAME=FIELD", name)
		}
	}
	return nil
}

// resolveArrays parses --column.
func (f *jobFlags) resolveArrays(c *orchestrator.Config) error {
	for _, text := range f.arrays {
		name, path, found := cutColumn(text)
		if !found {
			return usagef("--column %q: must be NAME=FILE.npy, for example --column embedding=embedding.npy", text)
		}
		c.Output.Arrays = append(c.Output.Arrays, orchestrator.OutputArray{Column: name, Path: path})
	}
	return nil
}

// cutColumn splits NAME=FILE. The name of a column may contain the sign, too.
func cutColumn(text string) (name, path string, found bool) {
	at := strings.LastIndex(text, "=")
	if at <= 0 || at == len(text)-1 {
		return "", "", false
	}
	return text[:at], text[at+1:], true
}

// minCheckpoint is the shortest --checkpoint: below it, a job would do little else.
const minCheckpoint = time.Second

// resolve builds a Config from the flags.
func (f *jobFlags) resolve(cmd *cobra.Command) (orchestrator.Config, error) {
	c := f.config
	for _, one := range []struct {
		flag  string
		value int64
	}{
		{"gpus-per-worker", int64(c.Devices.GPUsPerWorker)},
		{"batch-size", int64(f.batchSize.records)}, {"batch-bytes", int64(f.batchBytes)},
		{"chunks-per-gpu", int64(c.Batching.ChunksPerGPU)}, {"max-record-bytes", int64(f.maxRecord)},
		{"part-bytes", int64(f.partBytes)},
		{"fetch-max-bytes", int64(f.fetchMax)}, {"fetch-concurrency", int64(c.Fetch.Concurrency)},
		{"fetch-per-host", int64(c.Fetch.PerHost)}, {"fetch-timeout", int64(c.Fetch.Timeout)},
		{"open-timeout", int64(c.Failures.OpenTimeout)},
		{"checkpoint", int64(c.Resume.Checkpoint)}, {"drain-timeout", int64(c.Resume.DrainTimeout)},
	} {
		if one.value <= 0 && cmd.Flags().Lookup(one.flag) != nil {
			return c, usagef("--%s must be at least 1, not %s", one.flag, cmd.Flags().Lookup(one.flag).Value)
		}
	}
	if cmd.Flags().Lookup("checkpoint") != nil && c.Resume.Checkpoint < minCheckpoint {
		return c, usagef("--checkpoint %s is too short: must be at least %s, since each checkpoint ends a chunk and starts another", c.Resume.Checkpoint, minCheckpoint)
	}
	if cmd.Flags().Changed("timeout") && c.Failures.Timeout <= 0 {
		return c, usagef("--timeout must be longer than 0s, not %s", c.Failures.Timeout)
	}
	if cmd.Flags().Changed("gpus") && strings.TrimSpace(c.Devices.GPUs) == "" {
		return c, usagef("--gpus is empty: name devices, or use all")
	}
	if err := f.resolveDevices(&c); err != nil {
		return c, err
	}
	if c.Batching.Auto = f.batchSize.auto; cmd.Flags().Changed("batch-size") && !c.Batching.Auto {
		c.Batching.Size = f.batchSize.records
	}
	c.Batching.Bytes, c.Batching.Cost, c.Output.PartBytes = int(f.batchBytes), int64(f.batchCost), int64(f.partBytes)
	if cmd.Flags().Changed("max-record-bytes") {
		c.Input.MaxRecordBytes = int64(f.maxRecord)
	}
	switch f.badInput {
	case "", "fail":
	case "skip":
		c.Input.SkipBad = true
	default:
		return c, usagef("--bad-input %q: must be fail or skip", f.badInput)
	}
	if err := f.resolveFetch(cmd, &c); err != nil {
		return c, err
	}
	if err := f.resolveArrays(&c); err != nil {
		return c, err
	}
	c.Input.Columns = joinTypes(c.Input.Columns)
	if output, err := encode.Choose(c.Output.Path, c.Output.Format); err == nil && output.Table {
		c.Input.Columns, c.Output.Columns = nil, c.Input.Columns
	}
	if f.split != "auto" && f.split != "" {
		c.Input.Split = input.Split(f.split)
	}
	return f.resolveKernel(c)
}

// resolveKernel reads the configuration of the kernel or the steps.
func (f *jobFlags) resolveKernel(c orchestrator.Config) (orchestrator.Config, error) {
	var err error
	if len(f.steps) > 0 || len(f.stepConfigs) > 0 {
		if c.Kernel.Name, c.Kernel.Config, err = chainOf(c.Kernel.Name, f.kernelConfig, f.steps, f.stepConfigs); err != nil {
			return c, err
		}
		c.Kernel.Config, err = withTruncated("steps", c.Kernel.Config, f.truncated)
		return c, err
	}
	if c.Kernel.Config, err = readConfig("--kernel-config", f.kernelConfig); err != nil {
		return c, err
	}
	c.Format = impliedFormat(c)
	c.Kernel.Config, err = withTruncated(c.Kernel.Name, c.Kernel.Config, f.truncated)
	return c, err
}

// withTruncated returns the configuration of openai: or serve: with a member that says what
// becomes of answers that were cut off.
func withTruncated(kernel string, config []byte, value string) ([]byte, error) {
	if value == "" {
		return config, nil
	}
	if value != openai.TruncatedKeep && value != openai.TruncatedFail {
		return nil, usagef("--truncated %q: must be %s or %s", value, openai.TruncatedKeep, openai.TruncatedFail)
	}
	if !strings.HasPrefix(kernel, "openai:") && !strings.HasPrefix(kernel, "serve:") {
		return nil, usagef("--truncated is for openai: and serve:, not for %s", kernel)
	}
	members := make(map[string]json.RawMessage)
	if len(config) > 0 {
		if err := json.Unmarshal(config, &members); err != nil || members == nil {
			return nil, usagef("--kernel-config is not a JSON object")
		}
	}
	members["truncated"] = strconv.AppendQuote(nil, value)
	return json.Marshal(members)
}

// resolveDevices parses the device flags that need more than a plain value.
func (f *jobFlags) resolveDevices(c *orchestrator.Config) (err error) {
	switch f.pin {
	case "index":
	case "uuid":
		c.Devices.PinUUID = true
	default:
		return usagef("--pin %q: must be index or uuid", f.pin)
	}
	if f.workers == "auto" {
		c.Devices.WorkersPerGPU = orchestrator.AutoWorkers
	} else if c.Devices.WorkersPerGPU, err = strconv.Atoi(f.workers); err != nil || c.Devices.WorkersPerGPU < 1 {
		return usagef("--workers-per-gpu must be at least 1, or auto, not %s", f.workers)
	}
	if f.monitor == "" {
		return nil
	}
	c.Devices.Monitor, err = gpu.LoadConfig(f.monitor)
	return err
}

// readConfig accepts inline JSON or the name of a JSON file.
func readConfig(flag, value string) ([]byte, error) {
	if value == "" {
		return nil, nil
	}
	if json.Valid([]byte(value)) {
		return []byte(value), nil
	}
	if !namesFile(value) {
		return nil, usagef("%s is not valid JSON: %s", flag, value)
	}
	data, err := os.ReadFile(value)
	if err != nil {
		return nil, usagef("%s: %w", flag, err)
	}
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	if !json.Valid(data) {
		return nil, usagef("%s: %s is not valid JSON", flag, value)
	}
	return data, nil
}

// namesFile reports whether a configuration is the name of a file, not JSON itself.
func namesFile(config string) bool {
	return !json.Valid([]byte(config)) && !strings.HasPrefix(strings.TrimSpace(config), "{")
}

// reads lists the files that the job depends on besides the input; nothing it writes may
// overwrite them. A kernel that cannot be found is reported later.
func (f *jobFlags) reads(c orchestrator.Config) (files []orchestrator.NamedFile) {
	add := func(name, path string) {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			files = append(files, orchestrator.NamedFile{Name: name, Path: path})
		}
	}
	if r, err := resolver(plugins.PythonOptions{}); err == nil && c.Kernel.Name != "" {
		r.Dir = cmp.Or(c.Dir, r.Dir)
		named, _ := r.Resolve(c.Kernel.Name, nil)
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

// staggerFlag is a flag value: true, false or auto.
type staggerFlag orchestrator.Stagger

func (s *staggerFlag) Type() string { return "bool|auto" }

func (s *staggerFlag) String() string {
	switch orchestrator.Stagger(*s) {
	case orchestrator.StaggerOn:
		return "true"
	case orchestrator.StaggerOff:
		return "false"
	}
	return "auto"
}

func (s *staggerFlag) Set(text string) error {
	if text == "auto" {
		*s = staggerFlag(orchestrator.StaggerAuto)
		return nil
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%q: must be true, false or auto", text)
	}
	*s = staggerFlag(orchestrator.StaggerOff)
	if on {
		*s = staggerFlag(orchestrator.StaggerOn)
	}
	return nil
}

// batchSize is a flag value: a number of records, or auto.
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
		return fmt.Errorf("%q: must be a number or auto", text)
	}
	b.records = n
	return nil
}

// byteSize is a flag value: a number of bytes such as 4096, 64K, 32MiB or 1G.
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
		return fmt.Errorf("%q is not a size; use for example 4096, 64K, 32MiB or 1G", text)
	}
	*b = byteSize(n * factor)
	return nil
}

// parseHalt parses never, fail=N and fail=P%.
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
		return halt, usagef("--halt %q: must be never, fail=N or fail=P%%", text)
	}
	return halt, nil
}

// checkLogLevel rejects levels unknown to slog.
func checkLogLevel(level string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return usagef("--log-level %q: must be debug, info, warn or error", level)
	}
	return nil
}
