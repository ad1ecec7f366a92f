package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/gpu/lease/claim"
	"github.com/gpurun/gpurun/internal/fault"
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

type allocateFlags struct {
	*gpusFlags
	gpu  string
	ttl  time.Duration
	wait time.Duration
}

func newAllocate(shared *gpusFlags) *cobra.Command {
	f := &allocateFlags{gpusFlags: shared}
	cmd := &cobra.Command{
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
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], args[1], args[2:]) },
	}
	cmd.Flags().StringVar(&f.gpu, "gpu", "", "`GPU` to lease from: an index, a UUID or a MIG instance; if several match (0-3), the one with the most free memory")
	cmd.Flags().DurationVar(&f.ttl, "ttl", 0, "lifetime of a lease without a command (0: until deallocated)")
	cmd.Flags().DurationVar(&f.wait, "wait", 30*time.Second, "maximum time to wait for memory that others hold")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if number := negative.FindString(err.Error()); number != "" {
			return fault.BadLease.New("cannot lease %s MiB: the size must be at least 1", number)
		}
		return fault.UnknownFlag.New("%s; see %s", flagMessage(err), helpOf(cmd))
	})
	return cmd
}

// negative matches a negative size that pflag parsed as a flag.
var negative = regexp.MustCompile(`-\d+$`)

func (f *allocateFlags) run(cmd *cobra.Command, name, size string, command []string) error {
	rules, err := f.rules(cmd)
	if err != nil {
		return err
	}
	memory, err := parseMB(size)
	if err != nil {
		return err
	}
	quota := rules.QuotaOf(name)
	for _, err := range []error{lease.CheckName(name), quota.Check(name, memory), f.check(cmd, command)} {
		if err != nil {
			return err
		}
	}
	folder, err := lease.Open("")
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	devices, err := selectDevices(ctx, "gpu", cmp.Or(f.gpu, "all"))
	if err != nil {
		return err
	}
	if devices[0].Kind != gpu.GPU {
		return fault.NoGPU.New("no GPU to lease: this machine has no NVIDIA driver").Set(fault.Advised)
	}
	if f.gpu != "" {
		err = claim.CheckLeasable(devices)
	} else {
		devices, _, err = claim.Leasable(devices)
	}
	if err != nil {
		return err
	}
	wait := f.wait
	if !cmd.Flags().Changed("wait") {
		wait = lease.Seconds(rules.Optimization.AllocationTimeout)
	}
	held, err := folder.Acquire(ctx, lease.Request{
		Name: name, Number: 1, Named: f.gpu != "",
		GPUs:   func(ctx context.Context) ([]lease.GPU, error) { return claim.Cards(ctx, devices, gpu.Options{}) },
		Memory: memory, Prefer: quota.Prefer(), Owned: len(command) > 0, TTL: f.ttl, OneOfAName: true,
		Limits: rules.Limits(), Quota: quota, Wait: wait,
		Waiting: func(why string) { fmt.Fprintf(os.Stderr, "waiting up to %s: %s\n", wait, why) },
	})
	if err != nil {
		return err
	}
	stop() // from here on the command handles signals
	if len(command) > 0 {
		return f.runUnder(held, devices, name, command)
	}
	leases := held.Leases()
	held.Detach()
	if f.json {
		return writeJSON(leases)
	}
	for _, l := range leases {
		fmt.Printf("%s: %s holds %s\n", l.Label, l.Name, l.Share())
	}
	return nil
}

func (f *allocateFlags) check(cmd *cobra.Command, command []string) error {
	switch {
	case f.gpu == "" && cmd.Flags().Changed("gpu"):
		return fault.UnknownDevice.New("--gpu is empty: use an index or a UUID, or omit it")
	case strings.HasPrefix(f.gpu, "cpu"):
		return fault.UnknownDevice.New("--gpu %s: only GPUs can be leased", f.gpu)
	case f.ttl < 0:
		return fault.TooSmall.New("--ttl must not be negative")
	case f.ttl > 0 && len(command) > 0:
		return fault.FlagsClash.New("--ttl cannot be combined with a command: the lease ends with the command")
	case f.wait < 0:
		return fault.TooSmall.New("--wait must not be negative")
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
func (f *allocateFlags) runUnder(held *lease.Held, devices []gpu.Device, name string, command []string) error {
	defer held.Release()
	child := exec.Command(command[0], command[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.ExtraFiles = held.Files()
	child.Env = append(os.Environ(), "GPURUN_NO_LEASE=true", "GPURUN_NAME="+name)
	for _, d := range devices {
		if claim.Key(d) == held.Leases()[0].GPU {
			child.Env = append(child.Env, gpu.PinEnv([]gpu.Device{d})...)
		}
	}
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

// childExit is the exit status of the user's command, which gpurun exits with too.
type childExit int

func (c childExit) Error() string { return fmt.Sprintf("the command exited with status %d", int(c)) }

func childError(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return &reportedError{childExit(128 + int(status.Signal()))}
	}
	return &reportedError{childExit(exit.ExitCode())}
}
