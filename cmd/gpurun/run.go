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

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

const runHelp = `Run a kernel over INPUT on every GPU and write the results to OUTPUT in input order.
INPUT is JSON lines, Parquet, Arrow or CSV, plain or compressed; - is standard input.

  gpurun run -k embed.py in.jsonl -o out.jsonl
  gpurun run -f job.yaml

More examples:

  gpurun run -k echo in.jsonl -o out.jsonl
  gpurun run -k ./my-kernel --kernel-config model.json in.jsonl -o out.jsonl
  gpurun run -k 'exec:./score --fast' --gpus 0-3 in.jsonl -o out.jsonl
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

func newRun() *cobra.Command {
	var j *jobCommand
	cmd := &cobra.Command{
		Use:   "run -k KERNEL INPUT... -o OUTPUT",
		Short: "Run a kernel over records",
		Long:  runHelp,
		Args:  cobra.ArbitraryArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return j.run(cmd, args) },
	}
	j = newJobCommand(cmd, nil)
	return cmd
}

func (j *jobCommand) run(cmd *cobra.Command, args []string) error {
	args, err := j.readSettings(cmd, args, inputSetting)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		j.setInputs(args)
	} else if j.options.Shard.Shard == "" { // a shard reads what its run does
		return fault.NoInput.New("no input: name a JSON Lines file, or - for standard input; see gpurun run --help")
	}
	first := append(args, "-")[0]
	if _, err := os.Stat(first); len(args) > 1 && j.options.Events == "-" && os.IsNotExist(err) {
		return fault.SideFile.New("input %s does not exist; to write events to a file, use --json-events=FILE", first)
	}
	if j.config.Output.Path == "" {
		return fault.NoOutput.New("no output: add -o %s", suggestOutput(first))
	}
	if j.options.Shard.Shard != "" {
		return j.executeShards(cmd)
	}
	if err := j.options.Shard.checkUnused(); err != nil {
		return err
	}
	return j.execute(cmd, orchestrator.Run)
}

// runner runs a job: orchestrator.Run or orchestrator.Retry.
type runner func(context.Context, orchestrator.Config) (orchestrator.Report, error)

// execute runs a job with do and displays it as the flags request.
func (j *jobCommand) execute(cmd *cobra.Command, do runner) error {
	return j.inSession(cmd, func(s *jobSession, config orchestrator.Config) error {
		_, err := j.runJob(s, config, do)
		return err
	})
}

// jobSession is what the jobs of one command share: signals and where events go.
type jobSession struct {
	ctx    context.Context
	stops  *stops
	events io.Writer
	silent bool
	// follow, if set, takes the state of each job.
	follow func(*view.Collector)
	// claim keeps the devices of one job for the next; nil if there is only one.
	claim *keptClaim
}

// inSession checks the settings and calls run with signals and events in place.
func (j *jobCommand) inSession(cmd *cobra.Command, run func(*jobSession, orchestrator.Config) error) error {
	config, err := j.configure()
	if err != nil {
		return err
	}
	if err := checkDescriptors(config, j.options); err != nil {
		return err
	}
	if err := orchestrator.CheckBeside(config, j.reads(config), j.besides()...); err != nil {
		return err
	}
	events, closeEvents, err := openEvents(j.options.Events)
	if err != nil {
		return err
	}
	defer func() { _ = closeEvents() }()
	ctx, stops := listen(cmd.Context(), j.options.Shard.stopSignals()...)
	defer stops.stop()
	// With events on standard error, a program reads it: write nothing else there.
	s := &jobSession{ctx: ctx, stops: stops, events: events, silent: j.options.Quiet || j.options.Events == "-"}
	err = run(s, config)
	if events != nil && j.options.Events != "-" { // else Main writes it last
		writeErrorEvent(events, err)
	}
	if lost := closeEvents(); err == nil || errors.Is(err, errSomeFailed) {
		err = cmp.Or(lost, err)
	}
	return err
}

// runJob runs one job and displays it.
func (j *jobCommand) runJob(s *jobSession, config orchestrator.Config, do runner) (orchestrator.Report, error) {
	job := view.NewCollector(time.Now)
	if s.follow != nil {
		s.follow(job)
	}
	display := progress.New(progress.Options{
		View: job.View, Stderr: os.Stderr, Records: []string{config.Output.Path, config.Output.Errors}, Quiet: s.silent, Events: s.events,
	})
	defer display.Close()
	show := showHints(display.Event)
	config.Display.OnEvent = func(e orchestrator.Event) { job.Event(e); show(e) }
	config.Abort = s.stops.abort
	config.Output.Stdout = proc.Unsignaled(os.Stdout) // a closed pipe ends the job cleanly, not by SIGPIPE
	id, counted, closeServers, err := openServers(j.options, &config, job, display, s.stops)
	if err != nil {
		return orchestrator.Report{}, err
	}
	config.Devices.Claim = s.claim.keep(j.options.Lease.claim(id, counted.Allocations.Count))
	report, err := do(s.ctx, config)
	err = j.origins.explain(err)
	closeServers()
	display.Close()
	return report, j.conclude(report, err, s)
}

// conclude shows the report and returns the error that decides the exit status.
func (j *jobCommand) conclude(report orchestrator.Report, err error, s *jobSession) error {
	started, hints := !report.Started.IsZero(), reportHints{isShard: j.options.Shard.Shard != ""}
	switch {
	case started && !s.silent:
		progress.WriteReport(os.Stderr, report, hints)
	case err == nil && report.Failed > 0 && j.options.Events != "-":
		fmt.Fprint(os.Stderr, "gpurun: ")
		progress.WriteFailed(os.Stderr, report, hints)
	}
	if j.options.Report != "" && started {
		if writeErr := report.WriteFile(j.options.Report); writeErr != nil && err == nil {
			err = fault.SideFile.New("--report: %w", writeErr)
		}
	}
	if next := progress.AfterStop(report); err != nil && next != "" {
		err = &hinted{err: withHint(err), hint: "; " + next}
	}
	switch {
	case err != nil && s.stops.got.Load() != nil:
		return &stoppedBy{err, *s.stops.got.Load()}
	case err != nil:
		return err
	case report.Failed > 0 || len(report.SkippedInputs) > 0:
		return errSomeFailed
	}
	return nil
}

// besides lists the files written in addition to the job's own.
func (j *jobCommand) besides() []orchestrator.NamedFile {
	files := []orchestrator.NamedFile{{Name: "--report", Path: j.options.Report}, {Name: "--metrics-file", Path: j.options.Metrics}}
	if j.options.Events != "-" {
		files = append(files, orchestrator.NamedFile{Name: "--json-events", Path: j.options.Events})
	}
	return files
}

// openEvents opens the file of events; - is standard error, "" none.
func openEvents(name string) (events io.Writer, closed func() error, err error) {
	nothing := func() error { return nil }
	switch name {
	case "":
		return nil, nothing, nil
	case "-":
		return os.Stderr, nothing, nil
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, nil, fault.SideFile.New("--json-events: %w", err)
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
	got     atomic.Pointer[syscall.Signal]
	abort   chan struct{}
	signals chan os.Signal
	done    chan struct{}
}

// Cancel has the effect of a SIGTERM.
func (s *stops) Cancel() {
	select {
	case s.signals <- syscall.SIGTERM:
	default: // enough signals are queued already
	}
}

// stop ends listening.
func (s *stops) stop() {
	signal.Stop(s.signals)
	close(s.done)
}

// abortGrace is how long an aborted job may take to exit. Killing a hung worker takes
// 2 s.
const abortGrace = 5 * time.Second

// listen returns a context that the first SIGINT, SIGTERM or SIGHUP cancels. The second
// closes abort; if the process still hangs after abortGrace, for example because its
// output is not being read, it exits and takes its workers with it. More signals may stop the
// job, too.
func listen(parent context.Context, more ...os.Signal) (context.Context, *stops) {
	ctx, cancel := context.WithCancel(parent)
	s := &stops{abort: make(chan struct{}), signals: make(chan os.Signal, 4), done: make(chan struct{})}
	signal.Notify(s.signals, append(stopSignals(), more...)...)
	go func() {
		defer cancel()
		for n := 0; ; n++ {
			select {
			case sig := <-s.signals:
				if n == 0 {
					number := sig.(syscall.Signal)
					s.got.Store(&number)
					cancel()
				} else if n == 1 {
					close(s.abort)
					time.AfterFunc(abortGrace, func() { os.Exit(exitCode(&stoppedBy{signal: *s.got.Load()})) })
				}
			case <-s.done:
				return
			}
		}
	}()
	return ctx, s
}
