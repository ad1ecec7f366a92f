package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/progress"
)

const gpusHelp = `Share this host's GPUs between jobs and services by leasing them. gpurun run leases
its GPUs automatically; use these commands for other programs and to see who holds
which GPU and how much of its memory.

  gpurun gpus allocate embedding-service 4096 -- python serve.py
  gpurun gpus list
  gpurun gpus report

Leases are files in $GPURUN_LEASE_DIR, else /run/gpurun, else /tmp/gpurun-leases.
The lease of a process ends when the process exits, even if it crashes.`

// gpusFlags are the flags of all gpus commands.
type gpusFlags struct {
	Services string
	json     bool
}

// rules reads the host's quotas and limits.
func (f *gpusFlags) rules(cmd *cobra.Command) (lease.Config, error) {
	if err := fromEnvironment(cmd); err != nil {
		return lease.Config{}, err
	}
	return lease.ReadConfig(f.Services)
}

func newGPUs() *cobra.Command {
	f := &gpusFlags{}
	cmd := &cobra.Command{
		Use:   "gpus",
		Short: "Share GPUs between jobs and services",
		Long:  gpusHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAllocate(f), newDeallocate(f), newList(f), newOptimize(f), newWatch(f), newExport(f), newGPUReport(f))
	for _, sub := range cmd.Commands() {
		sub.Args = usageArgs(sub.Args)
		addFlags(sub.Flags(), f, servicesSetting("Services"))
		if sub.Name() != "export" {
			sub.Flags().BoolVar(&f.json, "json", false, "print JSON")
		}
	}
	return cmd
}

func newList(f *gpusFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List GPU leases",
		Long:  "List all leases: the GPU, the holder, the amount and the expiry.\n\n  gpurun gpus list\n  gpurun gpus list --json",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := f.rules(cmd); err != nil {
				return err
			}
			folder, err := lease.OpenExisting("")
			if err != nil {
				return err
			}
			leases := []lease.Lease{}
			if folder != nil {
				if leases, err = folder.List(); err != nil {
					return err
				}
			}
			if f.json {
				return writeJSON(leases)
			}
			if len(leases) == 0 {
				fmt.Println("no GPU is leased")
			}
			progress.WriteLeases(os.Stdout, leases, time.Now())
			return nil
		},
	}
}

func newDeallocate(f *gpusFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "deallocate NAME [GPU]",
		Short: "Release leases",
		Long: `Release the leases of NAME, or only those on GPU, given by its index or UUID, or
those on a MIG instance (2:0 or its UUID). A lease that a running process owns ends with the process
and cannot be released earlier.

  gpurun gpus deallocate embedding-service
  gpurun gpus deallocate embedding-service 0`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			rules, err := f.rules(cmd)
			if err != nil {
				return err
			}
			where := ""
			if len(args) == 2 {
				where = args[1]
			}
			folder, err := lease.Open("")
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), lease.Seconds(rules.Optimization.DeallocationTimeout))
			defer cancel()
			freed, err := folder.Deallocate(ctx, args[0], where)
			if f.json && err == nil {
				return writeJSON(freed)
			}
			for _, l := range freed { // even if an error follows
				fmt.Printf("%s: %s released %s\n", l.Label, l.Name, l.Share())
			}
			return err
		},
	}
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
