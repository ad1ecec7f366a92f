package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

const planHelp = `Show what gpurun run would do with the same flags: workers, devices, chunks and
batches. Counts the input and asks the kernel for its requirements without a device;
starts no worker and writes nothing. Leaves out GPUs that others hold, as run does,
but neither leases GPUs nor waits for them.

  gpurun plan -k echo in.jsonl
  gpurun plan -f job.yaml --print

Accepts every flag of gpurun run. Flags that matter while a job runs are checked, and
not listed here.`

// planIdle are the groups of settings that matter while a job runs. They are accepted so that
// users can replace run with plan in a command.
var planIdle = []string{spec.GroupResume, groupMachines, spec.GroupFailures, spec.GroupDisplay, groupServing}

func newPlan() *cobra.Command {
	var j *jobCommand
	var o struct{ JSON, Print bool }
	cmd := &cobra.Command{
		Use:   "plan -k KERNEL INPUT...",
		Short: "Show what run would do, without running it",
		Long:  planHelp,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, err := j.readSettings(cmd, args, inputSetting)
			if err != nil {
				return err
			}
			if len(args) > 0 {
				j.setInputs(args)
			}
			config, err := j.configure()
			if err != nil {
				return err
			}
			if o.Print {
				return printJobFile(os.Stdout, j, args)
			}
			if len(args) == 0 {
				return fault.NoInput.New("no input: name a JSON Lines file; see gpurun plan --help")
			}
			config.Devices.Claim = j.options.Lease.claim("", nil)
			ctx, stop := untilStopped(cmd.Context())
			defer stop()
			plan, err := orchestrator.MakePlan(ctx, config)
			if err != nil {
				return j.origins.explain(err)
			}
			return resultOf(plan, writePlan).show(o.JSON)
		},
	}
	j = newJobCommand(cmd, nil)
	j.flags.VisitAll(func(f *pflag.Flag) { f.Hidden = slices.Contains(planIdle, settingOf(f).setting.Group) })
	addFlags(j.flags, &o, jsonSetting,
		spec.Setting{Name: "print", Kind: spec.Bool, Field: "Print", Common: true, Help: "print all settings as a job file, each with its origin, instead of the plan"})
	return cmd
}

func writePlan(w io.Writer, plan orchestrator.Plan) {
	table := progress.NewTable(w)
	fmt.Fprintf(table, "input\t%s\t%s\n", plan.Input, recordsText(plan))
	if plan.Output != "" {
		fmt.Fprintf(table, "output\t%s\t\n", plan.Output)
	}
	for _, a := range plan.Arrays {
		what := "column " + a.Column + " of the results"
		if a.Mask {
			what = "the rows of " + a.Column + " without a result"
		}
		fmt.Fprintf(table, "array\t%s\t%s\n", a.Path, what)
	}
	if plan.Errors != "" {
		fmt.Fprintf(table, "errors\t%s\tfailed records\n", plan.Errors)
	}
	name := plan.Info.Name
	if plan.Info.Version != "" {
		name += " " + plan.Info.Version
	}
	if name == plan.Kernel {
		name = ""
	}
	fmt.Fprintf(table, "kernel\t%s\t%s\n", plan.Kernel, name)
	if plan.Format != "" {
		fmt.Fprintf(table, "format\t%s\trequests and results of OpenAI's batch files\n", plan.Format)
	}
	if needs := needsText(plan); needs != "" {
		fmt.Fprintf(table, "needs\t%s\t\n", needs)
	}
	for _, m := range plan.Fetch {
		fmt.Fprintf(table, "fetch\t%s\tthe file that %s names, paths below %s\n", m.Name, m.Field, cmp.Or(plan.FetchRoot, "no folder"))
	}
	if plan.ChunkRecords > 0 {
		fmt.Fprintf(table, "chunks\t%s of %s records\t\n", progress.Count(plan.Chunks), progress.Count(plan.ChunkRecords))
	}
	fmt.Fprintf(table, "at a time\t%s\n", plan.Flight)
	for i, slot := range plan.Slots {
		fmt.Fprintf(table, "worker %d\t%s\t%s\n", i, slot.Name, slotText(slot))
	}
	for _, s := range plan.Scaling {
		fmt.Fprintf(table, "workers\t%s\t%d at first, at most %d: as many as make it faster\n", s.Device, s.Workers, s.Most)
	}
	if len(plan.Slots) == 0 {
		fmt.Fprintf(table, "workers\tnone\tnothing to do\n")
	}
	_ = table.Flush()
	for _, note := range plan.Notes {
		fmt.Fprintf(w, "note: %s\n", note)
	}
}

// needsText lists the kernel's requirements.
func needsText(plan orchestrator.Plan) string {
	var needs []string
	if plan.Info.NeedsGPU {
		needs = append(needs, "a GPU")
	}
	if plan.Info.MinMemory > 0 {
		needs = append(needs, fmt.Sprintf("%d MiB of its memory", plan.Info.MinMemory>>20))
	}
	return strings.Join(append(needs, plan.Info.Frameworks...), ", ")
}

func recordsText(plan orchestrator.Plan) string {
	text := "counted during the run"
	if plan.Records >= 0 {
		text = progress.Count(plan.Records) + " records"
	}
	if plan.Files > 1 {
		text += fmt.Sprintf(", in %s files", progress.Count(int64(plan.Files)))
	}
	return text
}

func slotText(slot orchestrator.Slot) string {
	device := slot.Devices[0]
	var parts []string
	if device.Kind == gpu.GPU { // a CPU worker sees no GPU
		parts = append(parts, slot.Pin...)
	}
	if device.Token != "" && device.Name != "" {
		parts = append([]string{device.Name}, parts...)
	}
	if device.Memory > 0 {
		parts = append(parts, fmt.Sprintf("%d MiB", device.Memory>>20))
	}
	if device.MPS != "" {
		parts = append(parts, "MPS")
	}
	return strings.Join(parts, "  ")
}
