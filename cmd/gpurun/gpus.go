package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

const gpusHelp = `Share this host's GPUs between jobs and services by leasing them. gpurun run leases
its GPUs automatically; use these commands for other programs and to see who holds
which GPU and how much of its memory.

  gpurun gpus allocate embedding-service 4096 -- python serve.py
  gpurun gpus list
  gpurun gpus report

Leases are files in $GPURUN_LEASE_DIR, else /run/gpurun, else /tmp/gpurun-leases.
The lease of a process ends when the process exits, even if it crashes.`

// gpusOptions are the settings of all gpus commands; each has some of them.
type gpusOptions struct {
	Services            string
	JSON                bool
	GPU                 string
	TTL, Wait, Interval time.Duration
	Threshold           share
	Count               int
}

// share is a number between 0 and 1 that may not be set.
type share struct {
	value float64
	isSet bool
}

// Set parses a share.
func (s *share) Set(text string) (err error) {
	s.value, err = strconv.ParseFloat(text, 64)
	if s.isSet = err == nil && s.value >= 0 && s.value <= 1; !s.isSet {
		return errors.New("must be between 0 and 1, for example 0.85")
	}
	return nil
}

// command returns a command that gets the host's quotas and limits. It shows what run returns,
// even if an error follows.
func (o *gpusOptions) command(cmd *cobra.Command, run func(cmd *cobra.Command, rules lease.Config, args []string) (*result, error), settings ...spec.Setting) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		rules, err := lease.ReadConfig(o.Services)
		if err != nil {
			return err
		}
		if o.Threshold.isSet {
			rules.Optimization.MemoryThreshold = o.Threshold.value
		}
		done, err := run(cmd, rules, args)
		if done == nil || err != nil && o.JSON {
			return err
		}
		return cmp.Or(err, done.show(o.JSON))
	}
	return newCommand(cmd, o, append(settings, servicesSetting("Services"), jsonSetting)...)
}

func newGPUs() *cobra.Command {
	o := &gpusOptions{}
	cmd := &cobra.Command{Use: "gpus", Short: "Share GPUs between jobs and services", Long: gpusHelp}
	cmd.AddCommand(o.newAllocate(), o.newDeallocate(), o.newList(), o.newOptimize(), o.newWatch(), o.newExport(), o.newReport())
	return cmd
}

func (o *gpusOptions) newList() *cobra.Command {
	return o.command(&cobra.Command{
		Use:   "list",
		Short: "List GPU leases",
		Long:  "List all leases: the GPU, the holder, the amount and the expiry.\n\n  gpurun gpus list\n  gpurun gpus list --json",
		Args:  cobra.NoArgs,
	}, func(*cobra.Command, lease.Config, []string) (*result, error) {
		folder, err := lease.OpenExisting("")
		leases := []lease.Lease{}
		if err == nil && folder != nil {
			leases, err = folder.List()
		}
		return &result{leases, func(w io.Writer) {
			if len(leases) == 0 && err == nil {
				fmt.Fprintln(w, "no GPU is leased")
			}
			progress.WriteLeases(w, leases, time.Now())
		}}, err
	})
}

func (o *gpusOptions) newDeallocate() *cobra.Command {
	return o.command(&cobra.Command{
		Use:   "deallocate NAME [GPU]",
		Short: "Release leases",
		Long: `Release the leases of NAME, or only those on GPU, given by its index or UUID, or
those on a MIG instance (2:0 or its UUID). A lease that a running process owns ends with the process
and cannot be released earlier.

  gpurun gpus deallocate embedding-service
  gpurun gpus deallocate embedding-service 0`,
		Args: cobra.RangeArgs(1, 2),
	}, func(cmd *cobra.Command, rules lease.Config, args []string) (*result, error) {
		folder, err := lease.Open("")
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), lease.Seconds(rules.Optimization.DeallocationTimeout))
		defer cancel()
		freed, err := folder.Deallocate(ctx, args[0], strings.Join(args[1:], ""))
		return newLeased(freed, "released"), err
	})
}

// newLeased is the result of a command that has done something to leases.
func newLeased(leases []lease.Lease, verb string) *result {
	return &result{leases, func(w io.Writer) {
		for _, l := range leases {
			fmt.Fprintf(w, "%s: %s %s %s\n", l.Label, l.Name, verb, l.Share())
		}
	}}
}

// selectDevices returns the devices that a flag names. An error in the value names the
// flag.
func selectDevices(ctx context.Context, flag, value string) ([]gpu.Device, error) {
	var inventory gpu.Inventory
	selection, err := gpu.ParseSelection(value)
	if err == nil {
		inventory, err = gpu.Select(ctx, selection, gpu.Options{})
	}
	if fault.KindOf(err) == fault.Usage {
		err = fault.BadValue.New("--%s %s: %w", flag, value, err)
	}
	return inventory.Devices, err
}
