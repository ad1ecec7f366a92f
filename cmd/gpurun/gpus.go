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

const gpusHelp = `Share this host's GPUs between jobs and services: who holds which GPU, and how
much of its memory. A gpurun run takes its GPUs by itself; these commands are for
everything else, and for looking.

  gpurun gpus allocate embedding-service 4096 -- python serve.py
  gpurun gpus list
  gpurun gpus report

Leases are files in $GPURUN_LEASE_DIR, else /run/gpurun, else /tmp/gpurun-leases.
That of a process ends with it, however it ends.`

// gpusFlags are those of all gpus commands.
type gpusFlags struct {
	services string
	json     bool
}

// rules reads what the host's owner has decided.
func (f *gpusFlags) rules(cmd *cobra.Command) (lease.Config, error) {
	if err := fromEnvironment(cmd); err != nil {
		return lease.Config{}, err
	}
	return lease.ReadConfig(f.services)
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
		registerServices(sub.Flags(), &f.services)
		if sub.Name() != "export" {
			sub.Flags().BoolVar(&f.json, "json", false, "as JSON")
		}
	}
	return cmd
}

func newList(f *gpusFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Show who holds which GPU",
		Long:  "Show every lease: the GPU, its holder, how much, and until when.",
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
		Short: "Give back what was allocated",
		Long: `Give back the leases of NAME, or those on GPU: its index or UUID, or a MIG
instance's UUID. Leases of a running process end with it, and not before.`,
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
			for _, l := range freed { // before an error, too
				fmt.Printf("%s: %s gave back %s\n", l.Label, l.Name, l.Share())
			}
			return err
		},
	}
}

// selectDevices finds the devices that a flag names. A mistake in its value is an error
// that names the flag.
func selectDevices(ctx context.Context, flag, value string) ([]gpu.Device, error) {
	var inventory gpu.Inventory
	selection, err := gpu.ParseSelection(value)
	if err == nil {
		inventory, err = gpu.Select(ctx, selection, gpu.Options{})
	}
	if fault.KindOf(err) == fault.Usage {
		err = fault.New(fault.Usage, "--%s %s: %w", flag, value, err)
	}
	return inventory.Devices, err
}
