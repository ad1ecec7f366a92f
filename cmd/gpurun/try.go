package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python"
)

const tryHelp = `Run a kernel on a few records in the foreground, and show each record next to what
the kernel makes of it. Nothing is written.

  gpurun try embed.py in.jsonl
  gpurun try embed.py:my_function 'data/*.jsonl.gz' -n 10 --offset 500
  gpurun try embed.py table.parquet --columns id,text
  gpurun try caption.py images.jsonl --fetch image=url
  head -n 5 in.jsonl | gpurun try 'exec:./score --fast' -

The kernel is opened once, on one device, and gets the records as one batch. What it
prints and its tracebacks appear on the terminal. In a Python kernel, breakpoint()
starts the debugger; no time limit applies. If the batch fails, gpurun tries its
records one by one. No GPU is leased: other jobs may be using it.`

// tryFlags are the flags of try.
type tryFlags struct {
	jobFlags
	records int
	offset  int64
}

func newTry() *cobra.Command {
	f := &tryFlags{}
	cmd := &cobra.Command{
		Use:   "try KERNEL INPUT...",
		Short: "Run a kernel on a few records and show the results",
		Long:  tryHelp,
		Args:  cobra.MinimumNArgs(2),
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], args[1:]) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVarP(&f.records, "records", "n", 3, "number of records")
	flags.Int64Var(&f.offset, "offset", 0, "skip this many records first")
	f.registerTables(flags)
	f.registerKernel(flags)
	f.registerFetchFields(flags)
	f.registerFetch(flags)
	for _, name := range []string{"kernel", "step", "step-config", "io-workers", "fetch-concurrency", "fetch-per-host"} {
		flags.Lookup(name).Hidden = true // the kernel is an argument
	}
	flags.StringVar(&f.config.Devices.GPUs, "gpus", "all", "device to use, the first if several match: all, 1, cpu:1")
	return cmd
}

func (f *tryFlags) run(cmd *cobra.Command, kernel string, inputs []string) error {
	if err := fromEnvironment(cmd); err != nil {
		return err
	}
	if f.records < 1 {
		return usagef("-n must be at least 1")
	}
	config, err := readConfig("--kernel-config", f.kernelConfig)
	if err != nil {
		return err
	}
	if err := f.resolveFetch(cmd, &f.config); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	sample := sample{inputs: inputs, format: f.config.Input.Format, columns: f.config.Input.Columns, skip: f.offset, count: f.records}
	records, files, err := sample.records(ctx)
	if err != nil {
		return err
	}
	t := &trial{kernel: kernel, view: newSideBySide(os.Stdout), fetched: fetchFiles(ctx, f.config.Fetch, files[0], records)}
	defer restoreTerminal()()
	defer proc.KillChildren() // processes that the kernel left behind
	if err = t.open(ctx, f.config.Kernel, config, f.config.Devices.GPUs); err == nil {
		err = t.compute(ctx, records)
	}
	if ctx.Err() != nil {
		proc.KillChildren() // a kernel at a breakpoint would not close
	}
	switch ended := t.close(); {
	case err != nil || ended == nil:
	case fault.KindOf(ended) == fault.Timeout: // the results are there; large frameworks take long to unload
		fmt.Fprintln(os.Stderr, "note:", ended)
	default:
		err = ended
	}
	if ctx.Err() != nil {
		return fault.New(fault.Canceled, "stopped")
	}
	return err
}

// trial is one kernel that is tried out.
type trial struct {
	kernel string
	view   *sideBySide
	opened plugins.Kernel
	end    func() // frees what opened leaves
	size   int    // records per batch; 0 means no preference
	// fetched are the files of the records; nil for none.
	fetched *fetched

	failed, raised int // records; raised are those that an exception or error failed
}

// open resolves, starts and opens the kernel.
func (t *trial) open(ctx context.Context, settings orchestrator.Kernel, config plugins.Config, gpus string) error {
	r, err := resolver(plugins.PythonOptions{Interpreter: settings.Python, NaN: settings.NaN})
	if err != nil {
		return err
	}
	r.Exec = plugins.ExecOptions{Mode: settings.ExecMode, ID: settings.ExecID, MaxLine: int64(orchestrator.DefaultMaxRecordBytes)}
	named, err := r.Resolve(t.kernel, config)
	if err != nil {
		return err
	}
	device, env, err := checkDevice(ctx, gpus)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s on %s\n", t.kernel, device.Name)
	if t.opened, t.end, err = startInTerminal(ctx, named, env, r.Dir); err != nil {
		return err
	}
	info, err := t.opened.Describe(ctx, named.Config)
	if err != nil {
		return err
	}
	if info.NeedsGPU && !device.GPU {
		return fault.New(fault.NoDevice, "kernel %s needs a GPU, and %s is not one", t.kernel, device.Name)
	}
	if t.fetched != nil && !info.ReadsFetched {
		return usagef("kernel %s does not read fetched files: use a Python kernel, openai: or serve: with images, or one that declares that it reads them (--fetch)", t.kernel)
	}
	t.size = info.BatchSize
	return t.opened.Open(ctx, device, named.Config)
}

// startInTerminal starts a kernel whose output appears on the terminal. A Python kernel
// can also read from it: its interpreter is then a child of this process.
func startInTerminal(ctx context.Context, named plugins.Named, env []string, dir string) (k plugins.Kernel, end func(), err error) {
	if n := len(named.Args); n == 0 || named.Args[n-1] != "python" {
		process, err := plugins.Start(ctx, plugins.Command{Path: named.Path, Args: named.Args, Env: env, Dir: dir, Log: os.Stderr})
		if err != nil {
			return nil, nil, err
		}
		return process, process.Kill, nil
	}
	for _, entry := range env { // those that select the device
		name, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, nil, err
		}
	}
	k, end = plugins.Loopback(python.NewInTerminal())
	return k, end, nil
}

// compute computes the records in batches and shows the results.
func (t *trial) compute(ctx context.Context, records []sampleRecord) error {
	for len(records) > 0 {
		n := len(records)
		if t.size > 0 {
			n = min(n, t.size)
		}
		if err := t.batch(ctx, records[:n]); err != nil {
			return err
		}
		records = records[n:]
	}
	switch {
	case t.raised > 0 && t.view.shown == t.raised:
		return fault.New(fault.Incompatible, "the kernel failed on every record")
	case t.failed > 0:
		return errSomeFailed
	}
	return nil
}

// batch computes one batch. If it fails, its records are tried one by one.
func (t *trial) batch(ctx context.Context, records []sampleRecord) error {
	var valid []sampleRecord
	var lines [][]byte
	for _, record := range records {
		if record.invalid == "" {
			valid, lines = append(valid, record), append(lines, record.line)
		}
	}
	if len(valid) < len(records) {
		return t.apart(ctx, records)
	}
	results, err := plugins.Call(ctx, t.opened, t.fetched.batchOf(lines))
	switch kind := fault.KindOf(err); {
	case err == nil:
	case ctx.Err() != nil || kind == fault.Crash || kind == fault.Device || kind == fault.Incompatible:
		return err
	case len(records) > 1:
		fmt.Fprintf(os.Stderr, "%s\nthe batch of %d records failed; trying them one by one\n", message(err), len(records))
		failed := t.failed
		if err := t.apart(ctx, records); err != nil || t.failed > failed {
			return err
		}
		return fault.New(fault.Incompatible, "the kernel fails on batches: %d records failed as a batch, and each of them succeeds alone", len(records))
	default:
		fmt.Fprintln(os.Stderr, message(err))
		t.raised++
		t.failed++
		t.view.failed(records[0], err.Error())
		return nil
	}
	for i, record := range records {
		lines, err := plugins.ResultLines(record.line, results, i)
		if err != nil {
			t.failed++
			t.view.failed(record, err.Error())
			continue
		}
		t.view.computed(record, lines)
	}
	return nil
}

// apart computes records one by one. A line that is not JSON never reaches a kernel.
func (t *trial) apart(ctx context.Context, records []sampleRecord) error {
	for _, record := range records {
		if record.invalid != "" {
			t.failed++
			t.view.failed(record, record.invalid)
			continue
		}
		if err := t.batch(ctx, []sampleRecord{record}); err != nil {
			return err
		}
	}
	return nil
}

// close closes the kernel, if it was started.
func (t *trial) close() error {
	if t.opened == nil {
		return nil
	}
	defer t.end()
	return t.opened.Close()
}
