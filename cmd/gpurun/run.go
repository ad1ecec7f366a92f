package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/orchestrator"
)

const runHelp = `Run a kernel over INPUT on every GPU and write the results to OUTPUT in input order.
INPUT is JSON lines, Parquet or CSV, plain or compressed; - is standard input.

  gpurun run -k echo in.jsonl -o out.jsonl
  gpurun run -k embed.py in.jsonl -o out.jsonl
  gpurun run -k ./my-kernel --kernel-config model.json in.jsonl -o out.jsonl
  gpurun run -k 'exec:./score --fast' --gpus 0-3 in.jsonl -o out.jsonl
  gpurun run -f job.yaml
  gpurun run -k embed.py 'data/**/part-*.jsonl.zst' -o out.parquet
  xzcat in.jsonl.xz | gpurun run -k echo - -o - | head

INPUT may be files, patterns (** stands for any folders), folders (their data files,
sorted), @FILE (a list of such names) and -. gzip and zstd are recognized by content.
All of it is one sequence of records.

Each line is one record. Records pass through byte for byte unless the kernel
changes them; blank lines are skipped. A record that fails, is not valid JSON or
is too long keeps its place and gets the member
  "_error": {"kind": …, "message": …, "step": …, "line": …}
Use --errors to write such records to a separate file instead.

After a signal, crash, reboot or full disk, run the same command again to resume.
At most --checkpoint of each worker's work is repeated. A job that reads a stream
resumes if the same bytes arrive again, or from a copy with --spool. A job that
writes to a stream cannot be resumed; gpurun warns when it starts.

-o out/ writes the output in parts (out/part-00000.jsonl, …) and out.manifest.json
that describes them. Concatenated, the parts are identical to a single output file.
Files and folders appear only once they are complete.

Standard output carries records only; progress and events go to standard error.
The folder out.jsonl.gpurun next to the output holds the job's journal while it
runs, and its logs, failures.jsonl and report.json.`

// runFlags are the flags of run and retry.
type runFlags struct {
	jobFlags
	leaseFlags
	listenFlags
	shardFlags
	job         jobFile
	events      string
	report      string
	metricsFile string
	quiet       bool
	logLevel    string
	halt        string
	giveUp      string
}

func newRun() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run -k KERNEL INPUT... -o OUTPUT",
		Short: "Run a kernel over records",
		Long:  runHelp,
		Args:  cobra.ArbitraryArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	cmd.Flags().SortFlags = false
	f.register(cmd.Flags())
	return cmd
}

// register adds all flags of run.
func (f *runFlags) register(flags *pflag.FlagSet) {
	c := &f.config
	f.job.register(flags)
	f.jobFlags.register(flags)
	flags.StringVarP(&c.Output.Path, "output", "o", "", "output `FILE` (.jsonl, .jsonl.gz, .jsonl.zst, .parquet), FOLDER/ for output in parts with a manifest, or - for standard output")
	flags.StringVar(&c.Output.Format, "output-format", "", "`FORMAT` of the output: jsonl, jsonl.gz, jsonl.zst, parquet (default: what the name of the output says, else jsonl)")
	flags.StringArrayVar(&f.arrays, "column", nil, "store column NAME of the results as a NumPy array and leave it out of the lines: `NAME=FILE.npy`, or NAME=FILE.f16.npy in half precision (repeatable); row i belongs to line i")
	f.partBytes = commit.DefaultPartBytes
	flags.Var(&f.partBytes, "part-bytes", "with -o FOLDER/, start a new part once the current one reaches this size; parts end at chunk boundaries")
	flags.StringVar(&f.truncated, "truncated", "", "what becomes of an answer of openai: or serve: that the server cut off at a limit of tokens: keep, or fail its record (default keep)")
	flags.BoolVar(&c.Output.Force, "force", false, "overwrite an existing output")
	flags.BoolVar(&c.Resume.Fresh, "fresh", false, "start over instead of resuming an interrupted job")
	flags.StringSliceVar(&c.Resume.AcceptChanges, "accept-changes", nil, "resume even if these have changed: kernel,config")
	flags.StringVar(&c.Resume.WorkDir, "work-dir", "", "create the job folder in this `FOLDER` instead of next to the output; several jobs can share it")
	flags.BoolVar(&c.Resume.Spool, "spool", false, "copy a streamed input to the job folder as fast as it arrives, and resume from that copy")
	flags.BoolVar(&c.Resume.Clean, "clean", false, "remove the job folder if every record succeeds (exit status 0)")
	flags.StringVar(&c.Output.Errors, "errors", "", "write failed records to this `FILE` instead of the output")
	f.shardFlags.register(flags)
	f.registerRunning(flags)
}

// registerRunning adds the flags that run and retry share: limits and output options.
func (f *runFlags) registerRunning(flags *pflag.FlagSet) {
	c := &f.config
	flags.DurationVar(&c.Failures.Timeout, "timeout", 0, "time limit per batch, including the first, or per record if the kernel computes records one by one; a kernel that exceeds it is killed and the batch is bisected to isolate the record that hangs (default 20 times the slowest good one, at least 1m for a batch, 5m until enough have been measured, and 10m for a record; for openai: and serve:, their own timeout)")
	flags.DurationVar(&c.Failures.OpenTimeout, "open-timeout", orchestrator.DefaultOpenTimeout, "time limit for a kernel to load its model, and for its first batch unless --timeout is set")
	flags.IntVar(&c.Failures.Retries, "retries", orchestrator.DefaultRetries, "retry up to this many times before marking records as failed: a chunk whose worker was lost, and a request that a model server refuses or does not answer")
	flags.DurationVar(&c.Resume.Checkpoint, "checkpoint", orchestrator.DefaultCheckpoint, "commit each worker's results at least this often; a kill loses at most this much work per worker")
	flags.DurationVar(&c.Resume.DrainTimeout, "drain-timeout", orchestrator.DefaultDrainTimeout, "when the job stops (signal, cancel, --max-time, --halt), wait this long for batches in flight; the next run computes the others")
	flags.DurationVar(&c.Resume.MaxTime, "max-time", 0, "stop after this time, for example before a scheduler's limit; run the same command to resume (0: no limit)")
	flags.Int64Var(&c.Resume.MaxRequests, "max-requests", 0, "stop when the job has sent this many requests, retries included, in all of its runs; raise it and run the same command to resume (0: no limit)")
	flags.Int64Var(&c.Resume.MaxTokens, "max-tokens-total", 0, "stop when the job's answers have used this many tokens in all of its runs; requests in flight are still answered (0: no limit)")
	flags.StringVar(&f.halt, "halt", "never", "stop when this many records have failed: never, fail=100, fail=5%; run the same command to resume")
	flags.StringVar(&f.giveUp, "give-up", "stop", "when no usable device remains: stop (run the same command to resume), or mark the remaining records as failed")
	f.leaseFlags.register(flags)
	f.listenFlags.register(flags, "", "serve a page, an API and metrics of the job at this `ADDRESS` while it runs (127.0.0.1:9401)")
	flags.StringVar(&f.metricsFile, "metrics-file", "", "write metrics to this `FILE` every 10s, for node_exporter's textfile collector (NAME.prom)")
	flags.StringVar(&f.report, "report", "", "write the final report as JSON to this `FILE`")
	flags.StringVar(&f.events, "json-events", "", "write events as JSON lines to standard error, or to a file with --json-events=`FILE`")
	flags.Lookup("json-events").NoOptDefVal = "-"
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "show only errors and a summary of failed records")
	flags.StringVar(&f.logLevel, "log-level", "info", "log level of the workers: debug, info, warn, error")
}

func (f *runFlags) run(cmd *cobra.Command, args []string) error {
	args, err := f.settle(cmd, args, inputSetting)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return usagef("no input: name a JSON Lines file, or - for standard input; see gpurun run --help")
	}
	f.setInputs(args)
	if _, err := os.Stat(args[0]); len(args) > 1 && f.events == "-" && os.IsNotExist(err) {
		return usagef("input %s does not exist; to write events to a file, use --json-events=FILE", args[0])
	}
	if f.config.Output.Path == "" {
		return usagef("no output: add -o %s", suggestOutput(args[0]))
	}
	if f.shardFlags.shard != "" {
		return f.executeShards(cmd)
	}
	if err := f.shardFlags.checkUnused(cmd.Flags()); err != nil {
		return err
	}
	return f.execute(cmd, orchestrator.Run)
}

// setInputs takes the positional arguments.
func (f *jobFlags) setInputs(args []string) {
	if f.config.Input.Path = args[0]; len(args) > 1 {
		f.config.Input.Path, f.config.Input.Paths = strings.Join(args, " "), args
	}
}

// configure builds the Config from all flags and rejects what run would reject.
func (f *runFlags) configure(cmd *cobra.Command) (orchestrator.Config, error) {
	config, err := f.combine(cmd)
	return config, f.job.origins.explain(err)
}

func (f *runFlags) combine(cmd *cobra.Command) (orchestrator.Config, error) {
	config, err := f.resolve(cmd)
	if err != nil {
		return config, err
	}
	if config.Dir, err = f.job.kernelDir(); err != nil {
		return config, err
	}
	if err := checkLogLevel(f.logLevel); err != nil {
		return config, err
	}
	config.Display.LogLevel = f.logLevel
	if config.Failures.Halt, err = parseHalt(f.halt); err != nil {
		return config, err
	}
	switch f.giveUp {
	case "stop":
	case "mark":
		config.Failures.GiveUpMark = true
	default:
		return config, usagef("--give-up %q: must be stop or mark", f.giveUp)
	}
	if config.Failures.Retries == 0 {
		config.Failures.Retries = -1 // zero means the default in Config
	}
	return config, f.leaseFlags.check(cmd.Flags(), config)
}

// runner runs a job: orchestrator.Run or orchestrator.Retry.
type runner func(context.Context, orchestrator.Config) (orchestrator.Report, error)

// execute runs a job with do and displays it as the flags request.
func (f *runFlags) execute(cmd *cobra.Command, do runner) error {
	return f.inSession(cmd, func(s *jobSession, config orchestrator.Config) error {
		_, err := f.runJob(s, config, do, reportHints{})
		return err
	})
}

// jobSession is what the jobs of one command share: signals and where events go.
type jobSession struct {
	ctx    context.Context
	flags  *pflag.FlagSet
	stops  *stops
	events io.Writer
	silent bool
	// claim keeps the devices of one job for the next; nil if there is only one.
	claim *keptClaim
}

// inSession checks the settings and calls run with signals and events in place.
func (f *runFlags) inSession(cmd *cobra.Command, run func(*jobSession, orchestrator.Config) error) error {
	config, err := f.configure(cmd)
	if err != nil {
		return err
	}
	if err := f.checkDescriptors(config); err != nil {
		return err
	}
	if err := orchestrator.CheckBeside(config, f.reads(config), f.besides()...); err != nil {
		return err
	}
	events, closeEvents, err := f.openEvents()
	if err != nil {
		return err
	}
	defer func() { _ = closeEvents() }()
	ctx, stops := listen(cmd.Context(), f.stopSignals()...)
	defer stops.stop()
	// With events on standard error, a program reads it: write nothing else there.
	s := &jobSession{ctx: ctx, flags: cmd.Flags(), stops: stops, events: events, silent: f.quiet || f.events == "-"}
	err = run(s, config)
	if events != nil && f.events != "-" { // else Main writes it last
		writeErrorEvent(events, err)
	}
	if lost := closeEvents(); err == nil || errors.Is(err, errSomeFailed) {
		err = cmp.Or(lost, err)
	}
	return err
}

// runJob runs one job and displays it.
func (f *runFlags) runJob(s *jobSession, config orchestrator.Config, do runner, hints progress.Hints) (orchestrator.Report, error) {
	display := progress.New(progress.Options{
		Stderr: os.Stderr, Records: []string{config.Output.Path, config.Output.Errors}, Quiet: s.silent, Events: s.events,
	})
	defer display.Close()
	observe := config.Display.OnEvent
	config.Display.OnEvent = showHints(display.Event)
	if observe != nil {
		show := config.Display.OnEvent
		config.Display.OnEvent = func(e orchestrator.Event) { observe(e); show(e) }
	}
	config.Abort = s.stops.abort
	config.Output.Stdout = proc.Unsignaled(os.Stdout) // a closed pipe ends the job cleanly, not by SIGPIPE
	id, counted, closeServers, err := f.openServers(&config, display, s.stops)
	if err != nil {
		return orchestrator.Report{}, err
	}
	config.Devices.Claim = s.claim.keep(f.claim(s.flags, id, counted.Allocations.Count))
	report, err := do(s.ctx, config)
	err = f.job.origins.explain(err)
	closeServers()
	display.Close()
	return report, f.conclude(report, err, s, hints)
}

// conclude shows the report and returns the error that decides the exit status.
func (f *runFlags) conclude(report orchestrator.Report, err error, s *jobSession, hints progress.Hints) error {
	started := !report.Started.IsZero()
	switch {
	case started && !s.silent:
		progress.WriteReport(os.Stderr, report, hints)
	case err == nil && report.Failed > 0 && f.events != "-":
		fmt.Fprint(os.Stderr, "gpurun: ")
		progress.WriteFailed(os.Stderr, report, hints)
	}
	if f.report != "" && started {
		if writeErr := report.WriteFile(f.report); writeErr != nil && err == nil {
			err = usagef("--report: %w", writeErr)
		}
	}
	if next := progress.AfterStop(report); err != nil && next != "" {
		err = &hinted{err: withHint(err), hint: "; " + next}
	}
	switch {
	case err != nil && s.stops.got.Load() != nil:
		return &stoppedBy{signal: *s.stops.got.Load(), err: err}
	case err != nil:
		return err
	case report.Failed > 0 || len(report.SkippedInputs) > 0:
		return errSomeFailed
	}
	return nil
}

// besides lists the files written in addition to the job's own.
func (f *runFlags) besides() []orchestrator.NamedFile {
	files := []orchestrator.NamedFile{{Name: "--report", Path: f.report}, {Name: "--metrics-file", Path: f.metricsFile}}
	if f.events != "-" {
		files = append(files, orchestrator.NamedFile{Name: "--json-events", Path: f.events})
	}
	return files
}

func (f *runFlags) openEvents() (events io.Writer, closed func() error, err error) {
	nothing := func() error { return nil }
	switch f.events {
	case "":
		return nil, nothing, nil
	case "-":
		return os.Stderr, nothing, nil
	}
	file, err := os.Create(f.events)
	if err != nil {
		return nil, nil, usagef("--json-events: %w", err)
	}
	written := &eventsFile{file: file}
	return written, written.close, nil
}

// suggestOutput derives an output name from the input: in.jsonl becomes in.out.jsonl.
func suggestOutput(input string) string {
	if input == "-" {
		return "out.jsonl"
	}
	ext := filepath.Ext(input)
	return fmt.Sprintf("%s.out%s", strings.TrimSuffix(input, ext), ext)
}

// stops holds the stop requests received as signals.
type stops struct {
	got   atomic.Pointer[syscall.Signal]
	abort chan struct{}
	stop  func()
	// cancel has the effect of a SIGTERM.
	cancel func()
}

// abortGrace is how long an aborted job may take to exit. Killing a hung worker takes
// 2 s.
const abortGrace = 5 * time.Second

// listen returns a context that the first SIGINT, SIGTERM or SIGHUP cancels. The second
// closes abort; if the process still hangs after abortGrace, for example because its
// output is not being read, it exits and takes its workers with it. SIGHUP stays ignored
// where it already was, so that nohup works. More signals may stop the job, too.
func listen(parent context.Context, more ...os.Signal) (context.Context, *stops) {
	ctx, cancel := context.WithCancel(parent)
	s := &stops{abort: make(chan struct{})}
	signals := make(chan os.Signal, 4)
	wanted := append([]os.Signal{syscall.SIGINT, syscall.SIGTERM}, more...)
	if !signal.Ignored(syscall.SIGHUP) {
		wanted = append(wanted, syscall.SIGHUP)
	}
	signal.Notify(signals, wanted...)
	s.cancel = func() {
		select {
		case signals <- syscall.SIGTERM:
		default: // enough signals are queued already
		}
	}
	done := make(chan struct{})
	s.stop = func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
	go func() {
		for n := 0; ; n++ {
			select {
			case sig := <-signals:
				if n == 0 {
					number := sig.(syscall.Signal)
					s.got.Store(&number)
					cancel()
				} else if n == 1 {
					close(s.abort)
					time.AfterFunc(abortGrace, func() { os.Exit(exitCode(&stoppedBy{signal: *s.got.Load()})) })
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, s
}
