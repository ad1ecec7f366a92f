package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/gpu/lease/claim"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

const allocateHelp = `Lease MB MiB of GPU memory for NAME. Without --gpu, gpurun picks the GPU that the
services file prefers for NAME, else the one with the most free memory. Memory that
others use without a lease counts as taken.

  gpurun gpus allocate embedding-service 4096 -- python serve.py
  gpurun gpus allocate embedding-service 4096 --ttl 2h

With a COMMAND, the lease belongs to the command: it runs with only that GPU in
CUDA_VISIBLE_DEVICES, and the lease ends when it exits. Without one, the lease lasts
until gpurun gpus deallocate or for --ttl. A gpurun run started under a lease uses
that lease and its name.`

func (o *gpusOptions) newAllocate() *cobra.Command {
	return o.command(&cobra.Command{
		Use:   "allocate NAME MB [-- COMMAND …]",
		Short: "Lease GPU memory",
		Long:  allocateHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash >= 0 && dash < len(args) {
				args = args[:dash]
			} else if dash >= 0 {
				return errors.New("no command after --")
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
	}, func(cmd *cobra.Command, rules lease.Config, args []string) (*result, error) {
		return o.allocate(cmd.Context(), rules, args[0], args[1], args[2:])
	},
		spec.Setting{Name: "gpu", Field: "GPU", Value: "GPU", Least: 1, Help: "GPU to lease from: an index, a UUID or a MIG instance; if several match (0-3), the one with the most free memory"},
		spec.Setting{Name: "ttl", Kind: spec.Duration, Field: "TTL", Help: "lifetime of a lease without a command (default: until deallocated)"},
		spec.Setting{Name: "wait", Kind: spec.Duration, Field: "Wait", Zero: -1, Help: "maximum time to wait for memory that others hold (default 30s, or what the services file says)"})
}

func (o *gpusOptions) allocate(ctx context.Context, rules lease.Config, name, size string, command []string) (*result, error) {
	memory, err := parseMB(size)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(claim.CheckRequest(rules, name, memory), o.checkAllocate(command)); err != nil {
		return nil, err
	}
	ctx, stop := untilStopped(ctx)
	defer stop()
	devices, err := selectDevices(ctx, "gpu", cmp.Or(o.GPU, "all"))
	if err != nil {
		return nil, err
	}
	if devices[0].Kind != gpu.GPU {
		return nil, fault.NoGPU.New("no GPU to lease: this machine has no NVIDIA driver").Set(fault.Advised)
	}
	wait := max(0, cmp.Or(o.Wait, lease.Seconds(rules.Optimization.AllocationTimeout)))
	held, device, err := claim.Allocate(ctx, rules, devices, lease.Request{
		Name: name, Memory: memory, Named: o.GPU != "", Owned: len(command) > 0, TTL: o.TTL, Wait: wait,
		Waiting: func(why string) { fmt.Fprintf(os.Stderr, "waiting up to %s: %s\n", wait, why) },
	})
	if err != nil {
		return nil, err
	}
	stop() // from here on the command handles signals
	if len(command) > 0 {
		return nil, runUnder(held, device, name, command)
	}
	leases := held.Leases()
	held.Detach()
	return newLeased(leases, "holds"), nil
}

func (o *gpusOptions) checkAllocate(command []string) error {
	switch {
	case strings.HasPrefix(o.GPU, "cpu"):
		return fault.UnknownDevice.New("--gpu %s: only GPUs can be leased", o.GPU)
	case o.TTL > 0 && len(command) > 0:
		return fault.FlagsClash.New("--ttl cannot be combined with a command: the lease ends with the command")
	}
	return nil
}

// parseMB parses a number of MiB.
func parseMB(text string) (uint64, error) {
	mb, err := strconv.ParseUint(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && mb > 1<<43: // no card has 8 exabytes
		return 0, fault.BadLease.New("%s MiB is more than any GPU has", text)
	case err != nil:
		return 0, fault.BadLease.New("%q is not a number of MiB: use for example 4096", text)
	case mb == 0:
		return 0, fault.BadLease.New("cannot lease 0 MiB: the size must be at least 1")
	}
	return mb * lease.MiB, nil
}

// runUnder runs the command under the lease. The command inherits the lease, so that it
// outlives this process if this one is killed.
func runUnder(held *lease.Held, device gpu.Device, name string, command []string) error {
	defer held.Release()
	child := exec.Command(command[0], command[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.ExtraFiles = held.Files()
	child.Env = slices.Concat(os.Environ(), []string{"GPURUN_NO_LEASE=true", "GPURUN_NAME=" + name}, gpu.PinEnv([]gpu.Device{device}))
	// The terminal sends its signals to the command as well; forward the others.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	if err := child.Start(); err != nil {
		return fault.BadLease.New("run %s: %w", strings.Join(command, " "), err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		select {
		case s := <-signals:
			if s != syscall.SIGINT && s != syscall.SIGQUIT {
				_ = child.Process.Signal(s)
			}
		case err := <-ended:
			return childError(err)
		}
	}
}

// childExit is the exit status of the user's command, which gpurun exits with too, without a message.
type childExit int

func (c childExit) Error() string { return fmt.Sprintf("the command exited with status %d", int(c)) }

func childError(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return childExit(128 + int(status.Signal()))
	}
	return childExit(exit.ExitCode())
}
