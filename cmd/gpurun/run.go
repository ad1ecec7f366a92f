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

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/orchestrator"
)

const runHelp = `Run a kernel over INPUT, a file of JSON lines (- for standard input), on every
GPU, and write the results to the output in the same order.

  gpurun run -k echo in.jsonl -o out.jsonl
  gpurun run -k embed.py in.jsonl -o out.jsonl
  gpurun run -k ./my-kernel --kernel-config model.json in.jsonl -o out.jsonl
  gpurun run -k 'exec:./score --fast' --gpus 0-3 in.jsonl -o out.jsonl
  zcat in.jsonl.gz | gpurun run -k echo - -o - | head

A record is one line. Its bytes come out as they went in unless the kernel
changes them. Blank lines are skipped. A record that fails, a line that is no
JSON, or one that is too long is kept in its place with the member
  "_error": {"kind": …, "message": …, "step": …, "line": …}
or sent to a file of its own with --errors.

Interrupted by a signal, a crash, a reboot or a full disk, the same command resumes
where it stopped; at most --checkpoint of each worker's work is done again. A job
that reads a stream or writes to one cannot be resumed, and says so when it starts.

-o out/ keeps the output in parts, out/part-00000.jsonl and so on, with a
manifest.json that says what each holds. One behind the other they are the
output in one file. The folder appears when it is complete, like a file.

Records alone go to standard output; bars, lines and events go to standard
error. Beside out.jsonl the folder out.jsonl.gpurun keeps the job's journal
while it runs, and logs, failures.jsonl and report.json.`

// runFlags are those of run beside the job's own.
type runFlags struct {
	jobFlags
	leaseFlags
	events   string
	report   string
	quiet    bool
	logLevel string
	halt     string
	giveUp   string
}

func newRun() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run -k KERNEL INPUT -o OUTPUT",
		Short: "Run a kernel over a file of JSON lines",
		Long:  runHelp,
		Args:  cobra.MaximumNArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	cmd.Flags().SortFlags = false
	f.register(cmd.Flags())
	return cmd
}

// register adds all flags of run.
func (f *runFlags) register(flags *pflag.FlagSet) {
	c := &f.config
	f.jobFlags.register(flags)
	flags.StringVarP(&c.Output, "output", "o", "", "the output: a `FILE`, which appears when it is complete; FOLDER/ for one in parts, with a manifest.json; or - for standard output")
	f.partBytes = chunk.DefaultPartBytes
	flags.Var(&f.partBytes, "part-bytes", "a part of -o FOLDER/ ends with the first chunk by which it has so many bytes")
	flags.BoolVar(&c.Force, "force", false, "replace an output that exists")
	flags.BoolVar(&c.Fresh, "fresh", false, "start over, where the same command would resume an interrupted job")
	flags.StringSliceVar(&c.AcceptChanges, "accept-changes", nil, "resume a job although these have changed: kernel,config")
	flags.StringVar(&c.WorkDir, "work-dir", "", "make the job folder in this `FOLDER`, instead of beside the output; one folder serves many outputs")
	flags.BoolVar(&c.Clean, "clean", false, "remove the job folder after success (exit status 0)")
	flags.StringVar(&c.Errors, "errors", "", "a `FILE` for the failed records, instead of their place in the output")
	f.registerRunning(flags)
}

// registerRunning adds what run and retry share: limits, and what is shown.
func (f *runFlags) registerRunning(flags *pflag.FlagSet) {
	c := &f.config
	flags.DurationVar(&c.Timeout, "timeout", 0, "how long a batch may take, the first one too, before its kernel is killed and the batch bisected for the record that hangs (default 20 times the slowest good batch, at least 1m, at least 5m as long as few are known)")
	flags.DurationVar(&c.OpenTimeout, "open-timeout", orchestrator.DefaultOpenTimeout, "how long a kernel may take to load its model, and again for its first batch without --timeout")
	flags.IntVar(&c.Retries, "retries", orchestrator.DefaultRetries, "how often a chunk whose worker was lost is tried again before its records are marked (0: never)")
	flags.DurationVar(&c.Checkpoint, "checkpoint", orchestrator.DefaultCheckpoint, "how much of each worker's work a kill may cost")
	flags.DurationVar(&c.DrainTimeout, "drain-timeout", orchestrator.DefaultDrainTimeout, "how long batches in flight may take once the job stops (signal, cancel, --max-time, --halt); longer ones are computed by the next run")
	flags.DurationVar(&c.MaxTime, "max-time", 0, "stop after so long; the same command resumes (for schedulers' limits)")
	flags.StringVar(&f.halt, "halt", "never", "stop when so many records failed: never, fail=100, fail=5%; the same command resumes")
	flags.StringVar(&f.giveUp, "give-up", "stop", "when no device is left: stop (the same command resumes), or mark the rest as failed")
	f.leaseFlags.register(flags)
	flags.StringVar(&f.report, "report", "", "write the report as JSON to this `FILE`")
	flags.StringVar(&f.events, "json-events", "", "write events as JSON lines to standard error, or to a `FILE` with =FILE")
	flags.Lookup("json-events").NoOptDefVal = "-"
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "show no progress and no report, only errors and a summary of failed records")
	flags.StringVar(&f.logLevel, "log-level", "info", "of the workers' logs: debug, info, warn, error")
}

func (f *runFlags) run(cmd *cobra.Command, args []string) error {
	if err := fromEnvironment(cmd); err != nil {
		return err
	}
	if len(args) == 0 {
		return usagef("no input: name a file of JSON lines, or - for standard input; see gpurun run --help")
	}
	f.config.Input = args[0]
	if f.config.Output == "" {
		return usagef("no output: add -o %s", suggestOutput(f.config.Input))
	}
	return f.execute(cmd, orchestrator.Run)
}

// configure makes a Config of all flags, and refuses what run would refuse.
func (f *runFlags) configure(cmd *cobra.Command) (orchestrator.Config, error) {
	config, err := f.resolve(cmd)
	if err != nil {
		return config, err
	}
	if err := checkLogLevel(f.logLevel); err != nil {
		return config, err
	}
	config.LogLevel = f.logLevel
	if config.Halt, err = parseHalt(f.halt); err != nil {
		return config, err
	}
	switch f.giveUp {
	case "stop":
	case "mark":
		config.GiveUpMark = true
	default:
		return config, usagef("--give-up %q is neither stop nor mark", f.giveUp)
	}
	if config.Retries == 0 {
		config.Retries = -1 // Config's zero is its default
	}
	return config, f.leaseFlags.check(cmd.Flags(), config)
}

// execute does a job, shown as the flags say.
func (f *runFlags) execute(cmd *cobra.Command, do func(context.Context, orchestrator.Config) (orchestrator.Report, error)) error {
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
	// Events on standard error are for a program: nothing else goes there then.
	silent := f.quiet || f.events == "-"
	display := progress.New(progress.Options{
		Stderr: os.Stderr, Records: []string{config.Output, config.Errors}, Quiet: silent, Events: events,
	})
	defer display.Close()
	config.OnEvent = display.Event

	ctx, stops := listen(cmd.Context())
	defer stops.stop()
	config.Abort = stops.abort
	config.Stdout = proc.Unsignaled(os.Stdout) // who closes the pipe ends the job in order
	id, closeSocket := f.openSocket(&config, display, stops)
	config.Claim = f.claimer(cmd, config, id).claim
	report, err := do(ctx, config)
	closeSocket()
	display.Close()
	err = f.conclude(report, err, stops, silent)
	if events != nil && f.events != "-" { // else it is the last that this process says
		writeErrorEvent(events, err)
	}
	if lost := closeEvents(); err == nil || errors.Is(err, errSomeFailed) {
		err = cmp.Or(lost, err)
	}
	return err
}

// conclude shows the report and says how it ended.
func (f *runFlags) conclude(report orchestrator.Report, err error, stops *stops, silent bool) error {
	started := !report.Started.IsZero()
	switch {
	case started && !silent:
		progress.WriteReport(os.Stderr, report)
	case err == nil && report.Failed > 0 && f.events != "-":
		fmt.Fprint(os.Stderr, "gpurun: ")
		progress.WriteFailed(os.Stderr, report)
	}
	if f.report != "" && started {
		if writeErr := report.WriteFile(f.report); writeErr != nil && err == nil {
			err = usagef("--report: %w", writeErr)
		}
	}
	if next := progress.AfterStop(report); err != nil && next != "" {
		err = &hinted{err: err, hint: next}
	}
	switch {
	case err != nil && stops.got.Load() != nil:
		return &stoppedBy{signal: *stops.got.Load(), err: err}
	case err != nil:
		return err
	case report.Failed > 0:
		return errSomeFailed
	}
	return nil
}

// besides are the files that are written beside the job's own.
func (f *runFlags) besides() []orchestrator.NamedFile {
	files := []orchestrator.NamedFile{{Name: "--report", Path: f.report}}
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

// suggestOutput is a name beside the input that says what it is.
func suggestOutput(input string) string {
	if input == "-" {
		return "out.jsonl"
	}
	ext := filepath.Ext(input)
	return fmt.Sprintf("%s.out%s", strings.TrimSuffix(input, ext), ext)
}

// stops is what signals ask for.
type stops struct {
	got   atomic.Pointer[syscall.Signal]
	abort chan struct{}
	stop  func()
	// cancel does what SIGTERM does.
	cancel func()
}

// abortGrace is how long a job that was told to end at once may take: to kill a worker
// that hangs takes 2 s.
const abortGrace = 5 * time.Second

// listen returns a context that the first SIGINT, SIGTERM or SIGHUP ends; the
// second closes abort, and if that does not help, since nobody reads what this process
// writes, ends the process, and its workers with it. SIGHUP is left alone where it was ignored: that is what
// nohup means.
func listen(parent context.Context) (context.Context, *stops) {
	ctx, cancel := context.WithCancel(parent)
	s := &stops{abort: make(chan struct{})}
	signals := make(chan os.Signal, 4)
	wanted := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		wanted = append(wanted, syscall.SIGHUP)
	}
	signal.Notify(signals, wanted...)
	s.cancel = func() {
		select {
		case signals <- syscall.SIGTERM:
		default: // there are more than enough
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
