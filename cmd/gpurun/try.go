package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/internal/trial"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

const tryHelp = `Run a kernel on a few records in the foreground, and show each record next to what
the kernel makes of it. Nothing is written.

  gpurun try embed.py in.jsonl
  gpurun try embed.py:my_function 'data/*.jsonl.gz' -n 10 --offset 500
  gpurun try embed.py table.parquet --columns id,text
  gpurun try caption.py images.jsonl --fetch image=url
  head -n 5 in.jsonl | gpurun try 'exec:./score --fast' -
  gpurun try --keep-warm embed.py in.jsonl    # the next try need not import torch again

The kernel is opened once, on one device, and gets the records as one batch. What it
prints and its tracebacks appear on the terminal. In a Python kernel, breakpoint()
starts the debugger; no time limit applies. If the batch fails, gpurun tries its
records one by one. No GPU is leased: other jobs may be using it.`

// tryOptions are the settings that only gpurun try has.
type tryOptions struct {
	Records int
	Offset  int64
}

// isOfTry reports whether try has a setting. The kernel is an argument.
func isOfTry(s spec.Setting) bool {
	switch s.Group {
	case spec.GroupKernel, spec.GroupFetch:
		return !slices.Contains([]string{"kernel", "step", "step-config", "io-workers", "start", "fetch-concurrency", "fetch-per-host"}, s.Name)
	}
	return s.Name == "input-format" || s.Name == "columns" || s.Name == "gpus"
}

func newTry() *cobra.Command {
	var o tryOptions
	var config orchestrator.Config
	cmd := newCommand(&cobra.Command{
		Use:   "try KERNEL INPUT...",
		Short: "Run a kernel on a few records and show the results",
		Long:  tryHelp,
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			config.Kernel.Name = args[0]
			if err := setKernel(&config.Kernel, cmd.Flags()); err != nil {
				return err
			}
			return try(cmd.Context(), args[1:], o, config)
		},
	}, &o,
		spec.Setting{Name: "records", Short: "n", Kind: spec.Int, Field: "Records", Default: "3", Least: 1, Common: true, Help: "number of records"},
		spec.Setting{Name: "offset", Kind: spec.Int, Field: "Offset", Common: true, Help: "skip this many records first"})
	addFlags(cmd.Flags(), &config, settingsWhere(isOfTry)...)
	cmd.Flags().Lookup("gpus").Usage = "device to use, the first if several match: all, 1, cpu:1"
	return cmd
}

func try(ctx context.Context, inputs []string, o tryOptions, config orchestrator.Config) error {
	ctx, stop := untilStopped(ctx)
	defer stop()
	sample := trial.Sample{Inputs: inputs, Format: config.Input.Format, Columns: config.Input.Columns, Skip: o.Offset, Count: o.Records, Fetch: config.Fetch}
	if err := sample.Read(ctx); err != nil {
		return err
	}
	k, err := resolveKernel(ctx, config)
	if err != nil {
		return err
	}
	if keep := config.Kernel.KeepWarm; keep > 0 {
		if err := offerWarm(keep); err != nil {
			return err
		}
	}
	t := trial.Trial{Kernel: config.Kernel.Name, Command: k.command, Config: k.config, Device: k.device, Out: os.Stdout, Message: message}
	if progress.IsTerminal(os.Stdout) {
		t.Width, t.Color = terminalColumns(), os.Getenv("NO_COLOR") == ""
	}
	err = t.Run(ctx, sample)
	if t.Imports.Took >= slowImports && config.Kernel.KeepWarm == 0 {
		fmt.Fprintf(os.Stderr, "note: imports took %s; with --keep-warm the next try need not repeat them\n", t.Imports.Took.Round(time.Second/10))
	}
	return err
}

// slowImports is how long imports must take for try to mention --keep-warm.
const slowImports = 3 * time.Second
