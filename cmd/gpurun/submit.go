package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/cluster/slurm"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/internal/shards"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

const submitHelp = `Run one job on several machines. Each computes shards of the input, which they share
through the folder OUTPUT.shards; the merge makes one output of them, identical to that
of a single machine.

By hand, under any scheduler, on machines that share a file system:

  gpurun run --shard 0/4 -k embed.py /shared/in.jsonl -o /shared/out.jsonl   # and 1/4, 2/4, 3/4
  gpurun submit status /shared/out.jsonl
  gpurun submit merge /shared/out.jsonl

gpurun manual cluster describes what happens when machines are lost.`

func newSubmit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "submit",
		Short: "Run one job on several machines: its state, and the merge of its shards",
		Long:  submitHelp,
	}
	cmd.AddCommand(newSubmitSlurm(), newSubmitK8s(), newSubmitMerge(), newSubmitStatus())
	return cmd
}

const mergeHelp = `Verify the shards of OUTPUT and merge them, in input order. The result is identical to
that of a single machine, and appears when it is complete. A Parquet file has the same
rows, in row groups that end where shards end.

  gpurun submit merge /shared/out.jsonl
  gpurun submit merge --clean /shared/out/

If shards are missing, it lists them with the command that computes them, and exits with
status 7. The shards' outputs stay in OUTPUT.shards unless --clean is given, now or later.
A folder of parts is merged without copying data.`

func newSubmitMerge() *cobra.Command {
	var o struct {
		cluster.MergeOptions
		Clean bool
	}
	return newCommand(&cobra.Command{
		Use:   "merge OUTPUT",
		Short: "Merge the shards of a job into its output",
		Long:  mergeHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := cluster.Open(args[0])
			if err != nil {
				return err
			}
			ctx, stop := untilStopped(cmd.Context())
			defer stop()
			o.Labels, o.Describe, o.Refit, o.Again = shardLabels(), describeMerged(ctx, run), refit(run), o.Force
			return mergeRun(ctx, run, o.MergeOptions, o.Clean)
		},
	}, &o,
		spec.Setting{Name: "force", Kind: spec.Bool, Field: "Force", Help: "overwrite an existing output"},
		spec.Setting{Name: "clean", Kind: spec.Bool, Field: "Clean", Help: "remove the outputs of the shards afterwards"},
		lostAfterSetting("take a process for lost that shows no sign of life for this long, and merge in its place"))
}

func lostAfterSetting(help string) spec.Setting {
	return spec.Setting{Name: "claim-after", Kind: spec.Duration, Field: "LostAfter", Default: cluster.DefaultLostAfter.String(), Help: help}
}

// describeMerged returns what makes a merged output a finished job, for gpurun report and
// gpurun retry.
func describeMerged(ctx context.Context, run *cluster.Run) func(cluster.Merged, []cluster.Result) {
	return func(m cluster.Merged, results []cluster.Result) {
		c := shards.Combined{Output: m.Output, Errors: m.Errors, Sum: m.Sum, Print: run.Print, Arrays: run.Arrays, ArraySums: m.Arrays}
		for _, r := range results {
			c.Pieces = append(c.Pieces, shards.Piece{Output: run.ResultOutput(r), Bytes: r.Output.Bytes, Counts: r.Counts, Machine: r.Host})
		}
		var err error
		if c.Layout, err = run.Agreement().Layout(); err == nil {
			err = shards.Combine(ctx, c)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "gpurun: the output is complete, but gpurun report and gpurun retry cannot be used with it: %v\n", err)
		}
	}
}

// refit writes a shard again that lacks the layout of its run.
func refit(run *cluster.Run) func(context.Context, string, *cluster.Attempt, columns.Layout) (*cluster.Result, error) {
	return func(ctx context.Context, output string, to *cluster.Attempt, layout columns.Layout) (*cluster.Result, error) {
		r := shards.Refitted{Output: to.Output()}
		for _, a := range run.Arrays {
			r.Arrays = append(r.Arrays, to.Array(a))
		}
		if done, err := r.Refit(ctx, output, layout); err != nil || !done {
			return nil, err
		}
		return &cluster.Result{Output: r.Sum, Arrays: r.ArraySums}, nil
	}
}

// describeAgain makes a merged output a finished job if it is none: its folder could not be
// written, or is lost.
func describeAgain(run *cluster.Run, merged cluster.Merged, options cluster.MergeOptions) {
	_, err := orchestrator.Inspect(merged.Output, "")
	if e := fault.As(err); e == nil || e.Code != fault.NoJob {
		return
	}
	if results, err := run.Results(); err == nil {
		options.Describe(merged, results)
	}
}

// sharedJob explains why there is no job of an output that machines share.
func sharedJob(output string, err error) error {
	if e := fault.As(err); e == nil || e.Code != fault.NoJob {
		return err
	}
	run, failed := cluster.Open(output)
	if failed != nil || run.Merged() && !describable(run) {
		return err
	}
	return fault.NotMerged.New("machines share the job of %s, and its shards are in %s: gpurun submit status shows them, and gpurun submit merge makes one job of them", output, run.Dir)
}

// describable reports whether a merge can make a job of the shards: --clean removes theirs.
func describable(run *cluster.Run) bool {
	results, err := run.Results()
	return err == nil && (len(results) == 0 || slices.ContainsFunc(results, func(r cluster.Result) bool {
		_, err := orchestrator.Inspect(run.ResultOutput(r), "")
		return err == nil
	}))
}

// mergeRun merges a run, removes the outputs of its shards if clean is set, and reports the result.
func mergeRun(ctx context.Context, run *cluster.Run, options cluster.MergeOptions, clean bool) error {
	merged, err := run.Merge(ctx, options)
	var missing *cluster.MissingError
	switch {
	case errors.As(err, &missing):
		writeMissing(os.Stderr, run, missing)
		return fault.ShardsMissing.New("%w", err)
	case err != nil:
		return err
	case merged.Already:
		fmt.Printf("%s is already merged: %s\n", merged.Output, recordCounts(merged))
		describeAgain(run, merged, options)
	default:
		fmt.Println(mergedText(merged))
		if merged.Failed > 0 {
			fmt.Println("to retry them: gpurun retry " + slurm.Quote(merged.Output))
		}
	}
	if clean && run.Clean() && merged.Already { // last: describeAgain reads them
		fmt.Println("removed the outputs of the shards")
	}
	if merged.Failed > 0 || merged.Skipped > 0 {
		return errSomeFailed
	}
	return nil
}

// writeMissing lists the shards that are not done, and how to compute them.
func writeMissing(w io.Writer, run *cluster.Run, missing *cluster.MissingError) {
	for i, s := range missing.Shards {
		if i == maxMissing {
			fmt.Fprintf(w, "  and %d more\n", len(missing.Shards)-i)
			break
		}
		fmt.Fprintf(w, "  shard %d: %s\n", s.Index, progress.StateText(s))
	}
	fmt.Fprintf(w, "compute them with: %s\n", missingCommand(run, cluster.Missing(missing.Shards)))
}

// maxMissing is how many missing shards are described one by one.
const maxMissing = 10

// missingCommand returns the command that computes missing shards: without --no-claim, it computes
// the first and claims the others.
func missingCommand(run *cluster.Run, missing []int) string {
	records, _ := slurm.Records(slurmFolder(run.Output)) // without one, the command that started the run
	if n := len(records); n > 0 && records[n-1].Resubmit() != "" {
		return strings.ReplaceAll(records[n-1].Resubmit(), "%s", cluster.ArrayText(missing))
	}
	words := make([]string, 0, len(run.Command))
	skip := false
	for _, word := range run.Command {
		switch {
		case word == "--no-claim" || word == "--no-claim=true":
			continue
		case skip:
			word, skip = fmt.Sprintf("%d/%d", missing[0], run.Shards), false
		case word == "--shard":
			skip = true
		case strings.HasPrefix(word, "--shard="):
			word = fmt.Sprintf("--shard=%d/%d", missing[0], run.Shards)
		}
		words = append(words, slurm.Quote(word))
	}
	return strings.Join(words, " ")
}

func mergedText(m cluster.Merged) string {
	return fmt.Sprintf("merged %s: %s", m.Output, recordCounts(m))
}

func recordCounts(m cluster.Merged) string {
	text := progress.Count(m.Counts.Records) + " records"
	if m.Failed > 0 {
		text += fmt.Sprintf(", %s failed", progress.Count(m.Failed))
	}
	if m.Dropped > 0 {
		text += fmt.Sprintf(", %s dropped", progress.Count(m.Dropped))
	}
	return text
}

const submitStatusHelp = `Show every shard of OUTPUT: pending, running and where, done, failed; with records,
rates and messages.

  gpurun submit status /shared/out.jsonl
  gpurun submit status --watch /shared/out.jsonl
  gpurun submit status --json /shared/out.jsonl

A machine counts as lost when this command has watched it for --claim-after without a
sign of life: only --watch finds that out, unless the machine is this one.`

func newSubmitStatus() *cobra.Command {
	var o struct {
		viewOptions
		LostAfter time.Duration
	}
	return newCommand(&cobra.Command{
		Use:   "status OUTPUT",
		Short: "Show the shards of a job",
		Long:  submitStatusHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := cluster.Open(args[0])
			if err != nil {
				return err
			}
			watched := watchRun(run, o.LostAfter)
			return o.watch(cmd.Context(), func(ctx context.Context) (result, bool, error) {
				overview, err := watched.Overview(ctx)
				return resultOf(overview, progress.WriteRun), overview.Merged, err
			})
		},
	}, &o, watchSetting, intervalSetting, jsonSetting, lostAfterSetting("take a machine for lost that shows no sign of life for this long"))
}

// watchRun observes a run, with what its attempts have committed.
func watchRun(run *cluster.Run, lostAfter time.Duration) *cluster.Watch {
	w := run.Watch(lostAfter)
	w.Committed = shards.Committed
	return w
}
