package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/host"
	"github.com/gpurun/gpurun/internal/progress"
)

const statusHelp = `Show the GPUs of this host, one per line: state, load, temperature, power, memory,
workers and lease holders; then your running jobs and their progress.

A dash means that the GPU does not report the value. A GPU that does not respond is
UNAVAILABLE, with the reason. Memory used by jobs and lease holders does not affect
a GPU's state.

  gpurun status
  gpurun status --watch
  gpurun status --json`

func newStatus() *cobra.Command {
	var asJSON, watch bool
	var interval time.Duration
	var o struct{ Services string }
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show GPUs, lease holders and running jobs",
		Long:  statusHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd); err != nil {
				return err
			}
			if interval <= 0 {
				return fault.TooSmall.New("--interval must be more than 0")
			}
			rules, err := lease.ReadConfig(o.Services)
			if err != nil {
				return err
			}
			show := func(o host.Overview) error {
				if asJSON {
					return writeJSON(o)
				}
				progress.WriteOverview(os.Stdout, o)
				return nil
			}
			if !watch {
				return show(overview(cmd.Context(), rules))
			}
			return watchStatus(cmd.Context(), interval, rules, show)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "refresh until interrupted")
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between refreshes, with --watch")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	addFlags(cmd.Flags(), &o, servicesSetting("Services"))
	return cmd
}

// lookTime is how long a driver may take to respond to an interactive command.
const lookTime = 5 * time.Second

// overview inspects the host once.
func overview(ctx context.Context, rules lease.Config) host.Overview {
	gpus := gpu.NewObserver(gpu.Options{Timeout: lookTime})
	defer gpus.Close()
	return look(ctx, gpus, rules)
}

// look inspects the host. An unusable lease folder becomes a note.
func look(ctx context.Context, gpus *gpu.Observer, rules lease.Config) host.Overview {
	folder, err := lease.OpenExisting("")
	o := host.Look(ctx, gpus, folder, rules.Limits())
	if err != nil {
		o.Notes = append(o.Notes, err.Error())
	}
	return o
}

// watchStatus shows the overview repeatedly; on a terminal it clears the screen first.
func watchStatus(ctx context.Context, interval time.Duration, rules lease.Config, show func(host.Overview) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	gpus := gpu.NewObserver(gpu.Options{Timeout: lookTime})
	defer gpus.Close()
	for {
		o := look(ctx, gpus, rules)
		if ctx.Err() != nil {
			return nil
		}
		if progress.IsTerminal(os.Stdout) {
			fmt.Print("\x1b[H\x1b[2J")
		}
		if err := show(o); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func writeJSON(value any) error {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
