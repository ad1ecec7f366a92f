package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/internal/trial"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kerneltest"
	"github.com/gpurun/gpurun/plugins/process"
	"github.com/gpurun/gpurun/plugins/python"
	"github.com/gpurun/gpurun/plugins/resolve"
)

const pluginCheckHelp = `Check that a kernel meets the requirements of every kernel: it starts, opens and
closes; returns one verdict per record; returns valid JSON in order; gives the same
result whatever else is in the batch; and fails only the record at fault on odd,
long or unexpected records.

  gpurun plugin check ./my-kernel
  gpurun plugin check embed.py sample.jsonl

SAMPLE.jsonl contains records that the kernel can process; the first 64 are used.
Without it, gpurun generates records with the members "id" and "text". For a Python
kernel, the interpreter and its frameworks are shown too.`

// maxSamples limits how many sample records are used: each check processes all of them.
const maxSamples = 64

func newPluginCheck() *cobra.Command {
	var config orchestrator.Config
	var o struct {
		kerneltest.Options
		Tolerance share
		Verbose   bool
	}
	cmd := newCommand(&cobra.Command{
		Use:   "check KERNEL [SAMPLE.jsonl]",
		Short: "Check that a kernel works correctly",
		Long:  pluginCheckHelp,
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			config.Kernel.Name, o.Options.Tolerance = args[0], o.Tolerance.value
			if err := setKernel(&config.Kernel, cmd.Flags()); err != nil {
				return err
			}
			if len(args) == 2 {
				sample := trial.Sample{Inputs: args[1:], Count: maxSamples}
				err := sample.Read(cmd.Context())
				if err == nil {
					o.Records, err = sample.Lines()
				}
				if err != nil {
					return err
				}
			}
			return checkKernel(cmd.Context(), config, o.Options, o.Verbose)
		},
	}, &o,
		spec.Setting{Name: "timeout", Kind: spec.Duration, Field: "Timeout", Default: "10m", Help: "time limit per check, including loading the model"},
		spec.Setting{Name: "neighbors", Kind: spec.Bool, Field: "Neighbors", Help: "allow a result to depend on other records of its batch"},
		spec.Setting{Name: "tolerance", Field: "Tolerance", Value: "NUMBER", Help: "relative difference up to which two numbers count as equal (default 0.0001)"},
		spec.Setting{Name: "large-batch", Kind: spec.Int, Field: "LargeBatch", Help: "size of the large batch, in records (default 1000)"},
		spec.Setting{Name: "verbose", Short: "v", Kind: spec.Bool, Field: "Verbose", Help: "show the kernel's output"})
	addFlags(cmd.Flags(), &config, settingsWhere(func(s spec.Setting) bool {
		return s.Group == spec.GroupKernel && !slices.Contains([]string{"kernel", "step", "step-config"}, s.Name) || s.Name == "gpus"
	})...)
	cmd.Flags().Lookup("gpus").Usage = "device to check on, the first if several match: all, 1, cpu:1"
	return cmd
}

// checkKernel runs all checks of a kernel.
func checkKernel(ctx context.Context, config orchestrator.Config, options kerneltest.Options, verbose bool) error {
	ctx, stop := untilStopped(ctx)
	defer stop()
	k, err := resolveKernel(ctx, config)
	if err != nil {
		return err
	}
	options.Config, options.Device = k.config, k.device
	defer proc.KillChildren() // processes that the kernel left behind
	fmt.Printf("%s on %s\n", config.Kernel.Name, k.device.Name)
	_, _, isPython := resolve.CutPython(config.Kernel.Name)
	if isPython {
		showPython(ctx, k.config)
	}
	log := &tailLog{verbose: verbose}
	k.command.Log = log
	return runChecks(ctx, kerneltest.NewSession(kerneltest.Binary(k.command), options), adviser(isPython), log)
}

// resolved is a kernel that can be started without a job: on one device, which command pins.
type resolved struct {
	command process.Command
	config  plugins.Config
	device  plugins.Device
}

// resolveKernel finds the kernel of a job, and the first of its devices.
func resolveKernel(ctx context.Context, config orchestrator.Config) (k resolved, err error) {
	of := config.Kernel
	r, err := resolver()
	if err != nil {
		return k, err
	}
	r.Python = resolve.PythonOptions{Interpreter: of.Python, IOWorkers: of.IOWorkers, NaN: of.NaN}
	r.Exec = resolve.ExecOptions{Mode: of.ExecMode, ID: of.ExecID, MaxLine: int64(orchestrator.DefaultMaxRecordBytes)}
	named, err := r.Resolve(of.Name, plugins.Config(of.Config))
	if err != nil {
		return k, err
	}
	devices, err := selectDevices(ctx, "gpus", cmp.Or(config.Devices.GPUs, "all"))
	if err != nil {
		return k, err
	}
	k.device = orchestrator.Slot{Name: devices[0].String(), Devices: devices[:1], Threads: 1}.Device()
	k.config = named.Config
	k.command = process.Command{Path: named.Path, Args: named.Args, Env: append(os.Environ(), gpu.PinEnv(devices[:1])...), Dir: r.Dir}
	return k, nil
}

// showPython shows a Python kernel's interpreter and frameworks. The checks report any
// problem with them.
func showPython(ctx context.Context, config plugins.Config) {
	facts, err := python.Inspect(ctx, config)
	if err != nil {
		return
	}
	table := progress.NewTable(os.Stdout)
	fmt.Fprintf(table, "  Python\t%s\t%s\n", facts.Version, facts.Interpreter)
	if facts.Prepare != "" {
		fmt.Fprintf(table, "  prepare\tin %s\n", facts.Prepare)
	}
	var missing []string
	for _, framework := range facts.Frameworks {
		if framework.Version == "" {
			missing = append(missing, framework.Name)
			continue
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\n", framework.Name, framework.Version, framework.Devices)
	}
	_ = table.Flush()
	if len(missing) > 0 {
		fmt.Printf("  not installed: %s\n", strings.Join(missing, ", "))
	}
}

// runChecks runs all checks and prints the outcome of each.
func runChecks(ctx context.Context, session *kerneltest.Session, words func(kerneltest.Advice) string, log *tailLog) error {
	defer session.Close()
	passed, failed := 0, 0
	for _, check := range kerneltest.Checks() {
		outcome := advised(session.Run(ctx, check), words)
		if ctx.Err() != nil {
			return fault.Interrupted.New("stopped")
		}
		fmt.Println(indent(outcome.String()))
		switch {
		case outcome.Err != nil:
			failed++
		case outcome.Skipped == "":
			passed++
		}
	}
	if failed == 0 {
		fmt.Printf("the kernel passed all %d checks\n", passed)
		return nil
	}
	if words := log.tail.String(); words != "" && !log.verbose {
		fmt.Printf("\nlast output of the kernel:\n%s\n", indent(words))
	}
	return fault.KernelFails.New("the kernel failed %d of %d checks", failed, failed+passed)
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n        ") }

// tailLog keeps the end of the kernel's output and, if verbose, shows all of it.
type tailLog struct {
	verbose bool
	tail    proc.Tail
}

func (l *tailLog) Write(p []byte) (int, error) {
	if l.verbose {
		_, _ = os.Stderr.Write(p)
	}
	return l.tail.Write(p)
}
