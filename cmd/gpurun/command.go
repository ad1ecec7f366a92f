package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// newCommand gives a command flags for settings, which are stored in the struct that to points
// to. The environment sets those that are missing on the command line.
func newCommand(cmd *cobra.Command, to any, settings ...spec.Setting) *cobra.Command {
	addFlags(cmd.Flags(), to, settings...)
	spec.Fill(to, settings...)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := fromEnvironment(cmd); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

// eachCommand calls do for a command and those below it.
func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, do)
	}
}

// complete makes a wrong number of arguments a usage error. A command with subcommands shows its help.
func complete(cmd *cobra.Command) {
	if cmd.HasSubCommands() {
		cmd.Args = cobra.NoArgs
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	cmd.Args = usageArgs(cmd.Args)
}

// Settings that several commands have.
var (
	jsonSetting     = spec.Setting{Name: "json", Kind: spec.Bool, Field: "JSON", Common: true, Help: "print JSON"}
	watchSetting    = spec.Setting{Name: "watch", Short: "w", Kind: spec.Bool, Field: "Watch", Help: "refresh until interrupted"}
	intervalSetting = spec.Setting{Name: "interval", Kind: spec.Duration, Field: "Interval", Default: "2s", Least: 1, Help: "time between refreshes, with --watch"}
)

// viewOptions are those settings.
type viewOptions struct {
	JSON, Watch bool
	Interval    time.Duration
	scrolls     bool // a terminal keeps what was shown before
}

// result is what a command shows: its value as JSON, or what text writes.
type result struct {
	value any
	text  func(io.Writer)
}

// resultOf returns a value as a result that write shows as text.
func resultOf[T any](value T, write func(io.Writer, T)) result {
	return result{value, func(w io.Writer) { write(w, value) }}
}

// show prints a result.
func (r result) show(asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r.value)
	}
	r.text(os.Stdout)
	return nil
}

// watch calls look once or, with --watch, until it has shown the last state or ctx ends. On a
// terminal, what it shows replaces what it has shown before, unless it scrolls.
func (o viewOptions) watch(ctx context.Context, look func(context.Context) (seen result, last bool, err error)) error {
	ctx, stop := untilStopped(ctx)
	defer stop()
	for {
		seen, last, err := look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if o.Watch && !o.scrolls && progress.IsTerminal(os.Stdout) {
			_, _ = os.Stdout.WriteString("\x1b[H\x1b[2J")
		}
		if err := seen.show(o.JSON); err != nil || last || !o.Watch {
			return err
		}
		select {
		case <-time.After(o.Interval):
		case <-ctx.Done():
			return nil
		}
	}
}

// stopSignals are the signals that ask a command to stop. SIGHUP stays ignored where it already
// was, so that nohup works.
func stopSignals() []os.Signal {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// untilStopped returns a context that ends when the command is asked to stop.
func untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, stopSignals()...)
}
