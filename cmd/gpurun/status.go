package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
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
	var o struct {
		viewOptions
		Services string
	}
	return newCommand(&cobra.Command{
		Use:   "status",
		Short: "Show GPUs, lease holders and running jobs",
		Long:  statusHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rules, err := lease.ReadConfig(o.Services)
			if err != nil {
				return err
			}
			gpus := gpu.NewObserver(gpu.Options{Timeout: lookTime})
			defer gpus.Close()
			return o.watch(cmd.Context(), func(ctx context.Context) (result, bool, error) {
				return resultOf(look(ctx, gpus, rules), progress.WriteOverview), false, nil
			})
		},
	}, &o, watchSetting, intervalSetting, jsonSetting, servicesSetting("Services"))
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
