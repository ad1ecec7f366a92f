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
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/internal/server"
)

const statusHelp = `Show this host's GPUs, one a line: state, load, temperature, power, memory, the
workers on it, and who holds it; then your running jobs with their progress. It
changes nothing.

A value that a card does not report is a dash; a GPU that does not answer is
UNAVAILABLE, with the reason. Memory that jobs and holders of leases use does not make a
GPU's state worse.

  gpurun status
  gpurun status --watch
  gpurun status --json`

func newStatus() *cobra.Command {
	var asJSON, watch bool
	var interval time.Duration
	var services string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show GPUs, who holds them, and running jobs",
		Long:  statusHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd); err != nil {
				return err
			}
			if interval <= 0 {
				return usagef("--interval must be more than 0")
			}
			rules, err := lease.ReadConfig(services)
			if err != nil {
				return err
			}
			show := func(o server.Overview) error {
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
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "again and again, until interrupted")
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "how often, with --watch")
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	registerServices(cmd.Flags(), &services)
	return cmd
}

// lookTime is how long a driver may take to answer somebody who looks.
const lookTime = 5 * time.Second

// overview looks at the host. A folder of leases that cannot be used is a note.
func overview(ctx context.Context, rules lease.Config) server.Overview {
	folder, err := lease.OpenExisting("")
	o := server.Look(ctx, folder, rules.Limits(), gpu.Options{Timeout: lookTime})
	if err != nil {
		o.Notes = append(o.Notes, err.Error())
	}
	return o
}

// watchStatus shows it again and again: on a terminal in place of the last.
func watchStatus(ctx context.Context, interval time.Duration, rules lease.Config, show func(server.Overview) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		o := overview(ctx, rules)
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
