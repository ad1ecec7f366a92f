package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/shards"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/source"
)

// shardOptions make this process compute shards of a job that machines share.
type shardOptions struct {
	Shard          string
	NoClaim, Merge bool
	ClaimAfter     time.Duration
}

// checkUnused refuses flags that mean nothing without --shard.
func (o shardOptions) checkUnused() error {
	switch {
	case o.NoClaim:
		return fault.FlagsClash.New("--no-claim has no meaning without --shard")
	case o.Merge:
		return fault.FlagsClash.New("--merge has no meaning without --shard")
	}
	return nil
}

// indexVariables are the variables in which schedulers number the tasks of a job.
var indexVariables = []string{"SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"}

// labelVariables are those by which people recognize a task.
var labelVariables = []string{
	"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT", "SLURMD_NODENAME",
	"JOB_COMPLETION_INDEX", "POD_NAME", "NODE_NAME",
}

// shardLabels returns what the scheduler calls this process.
func shardLabels() map[string]string {
	labels := make(map[string]string)
	for _, name := range labelVariables {
		if value := os.Getenv(name); value != "" {
			labels[name] = value
		}
	}
	return labels
}

// shardForm is I/N, auto, auto+K, auto/N or auto+K/N.
var shardForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(\d{1,9})|(auto)(?:\+(\d{1,9}))?)(?:/([1-9]\d{0,8}))?$`)
})

// parseShard returns the number of a shard and how many there are; n is 0 if that is not named.
func parseShard(text string, getenv func(string) string) (index, n int, err error) {
	form := shardForm().FindStringSubmatch(text)
	if form == nil || form[2] == "" && form[4] == "" {
		return 0, 0, fault.BadShardNumber.New("--shard %q: use I/N with I from 0 to N-1, such as 3/16, or auto", text)
	}
	index, _ = strconv.Atoi(cmp.Or(form[1], form[3])) // "" is 0
	n, _ = strconv.Atoi(form[4])
	if form[2] != "" {
		task, err := taskIndex(getenv)
		if err != nil {
			return 0, 0, err
		}
		index += task
	}
	if n > 0 && index >= n {
		return 0, 0, fault.BadShardNumber.New("--shard %s: there is no shard %d of %d; shards count from 0", text, index, n)
	}
	return index, n, nil
}

// taskIndex returns the number that the scheduler gave this task.
func taskIndex(getenv func(string) string) (int, error) {
	var set []string
	for _, name := range indexVariables {
		if getenv(name) != "" {
			set = append(set, name)
		}
	}
	switch len(set) {
	case 0:
		return 0, fault.BadShardNumber.New("--shard auto: neither %s is set; start it as a task of an array, or name the shard: --shard 3/16", strings.Join(indexVariables, " nor "))
	case 1:
		index, err := strconv.Atoi(getenv(set[0]))
		if err != nil || index < 0 {
			return 0, fault.BadShardNumber.New("--shard auto: %s=%q is not a number of a shard", set[0], getenv(set[0]))
		}
		return index, nil
	}
	return 0, fault.BadShardNumber.New("--shard auto: both %s are set; name the shard: --shard 3/16", strings.Join(set, " and "))
}

// executeShards computes shards until none is left for this process.
func (j *jobCommand) executeShards(cmd *cobra.Command) error {
	o := j.options.Shard
	index, n, err := parseShard(o.Shard, os.Getenv)
	if err != nil {
		return err
	}
	return j.inSession(cmd, func(s *jobSession, config orchestrator.Config) error {
		given := func(setting string) bool { _, set := j.origins[setting]; return set }
		run, config, err := openRun(s.ctx, config, n, given, correctFailed(s.ctx, o.ClaimAfter, given))
		if err != nil {
			return err
		}
		work := &shardWork{job: j, session: s, config: config, run: run, started: time.Now()}
		work.config.Pool, s.claim = &orchestrator.Pool{}, &keptClaim{}
		err = work.work(index)
		work.config.Pool.Close()
		s.claim.release()
		if err == nil && o.Merge && work.outcome.Complete {
			err = work.merge()
		}
		return o.slurmTask().finish(run, work.outcome, s.stops.got.Load(), err)
	})
}

// openRun opens the run of an output, or creates it if n is not 0, and returns the settings with
// which this machine computes shards: what shapes results comes from the run. If a setting that
// was given here contradicts it, mayCorrect decides whether this command replaces the run.
func openRun(ctx context.Context, config orchestrator.Config, n int, given func(string) bool, mayCorrect func(*cluster.Run, orchestrator.Config) error) (*cluster.Run, orchestrator.Config, error) {
	run, err := cluster.Open(config.Output.Path)
	if e := fault.As(err); e != nil && e.Code == fault.NoRun && n > 0 {
		run, err = createRun(ctx, config, n, cluster.Create)
	}
	if err != nil {
		return nil, config, err
	}
	joined, differs, err := joinRun(run, config, n, given)
	if err != nil || differs == nil {
		return run, joined, err
	}
	if why := mayCorrect(run, config); why != nil {
		return nil, config, fault.OtherRun.New("%w; it cannot be corrected: %w", differs, why).Set(cluster.Folder(run.Output))
	}
	n = cmp.Or(n, run.Shards)
	if run, err = createRun(ctx, joined, n, run.Correct); err != nil {
		return nil, config, err
	}
	if joined, differs, err = joinRun(run, joined, n, given); err != nil || differs != nil { // another process was first
		return nil, config, errors.Join(err, differs)
	}
	fmt.Fprintf(os.Stderr, "gpurun: this command replaces the one that started the run, of which no shard is done: %s\n", run.Dir)
	return run, joined, nil
}

// joinRun returns the settings with which this machine takes part in a run, and how its command
// contradicts the one that started the run; nil if it does not.
func joinRun(run *cluster.Run, config orchestrator.Config, n int, given func(string) bool) (joined orchestrator.Config, differs, err error) {
	folder := cluster.Folder(run.Output) // with all corrections
	joined, texts, err := orchestrator.Join(config, run.Print, given)
	switch {
	case err != nil:
	case n > 0 && n != run.Shards:
		differs = fault.OtherRun.New("the run %s has %d shards, not %d", folder, run.Shards, n).Set(folder)
	case len(texts) > 0:
		differs = fault.OtherRun.New("this command differs from the one that started the run %s: %s", folder, strings.Join(texts, "; ")).Set(folder)
	}
	return joined, differs, err
}

// correctFailed lets a machine correct a run whose processes have all failed. What one has
// computed before it stopped is kept. A command that was corrected is refused: a task may start late.
func correctFailed(ctx context.Context, lostAfter time.Duration, given func(string) bool) func(*cluster.Run, orchestrator.Config) error {
	return func(run *cluster.Run, config orchestrator.Config) error {
		overview, err := watchRun(run, lostAfter).Overview(ctx)
		if err != nil {
			return err
		}
		if !overview.Claimed() {
			return fault.RunBegun.New("no machine has tried to compute it yet")
		}
		wrong, err := run.Corrected()
		if err != nil {
			return err
		}
		for _, m := range wrong {
			if _, differs, err := orchestrator.Join(config, m.Print, given); err == nil && len(differs) == 0 {
				return fault.RunBegun.New("it has corrected this command")
			}
		}
		for _, s := range overview.Shards {
			if s.State != cluster.Failed && s.Reached() > 0 {
				return fault.RunBegun.New("%d records of shard %d are computed", s.Reached(), s.Index)
			}
		}
		return overview.CheckIdle()
	}
}

// createRun counts the input, divides it, and creates the run.
func createRun(ctx context.Context, config orchestrator.Config, n int, create func(cluster.Manifest) (*cluster.Run, error)) (*cluster.Run, error) {
	survey, err := orchestrator.MakeSurvey(ctx, config, n)
	if err != nil {
		return nil, err
	}
	for _, note := range survey.Notes {
		fmt.Fprintln(os.Stderr, "gpurun: "+note)
	}
	index, err := json.Marshal(survey.Index)
	if err != nil {
		return nil, err
	}
	return create(cluster.Manifest{
		Output: survey.Output, Errors: survey.Errors, Format: survey.Format, Parts: survey.Parts, Columns: survey.Columns, Arrays: survey.Arrays,
		Shards: n, First: survey.First, Records: survey.Records, Command: os.Args, Print: survey.Print, Index: index,
	})
}

// shardWork is this process's part in a run.
type shardWork struct {
	job     *jobCommand
	session *jobSession
	config  orchestrator.Config
	run     *cluster.Run
	index   source.Index
	started time.Time
	// concurrent: the kernel computes records one by one, most likely by asking a server.
	concurrent bool
	// outcome is what came of the work.
	outcome cluster.Outcome
}

func (w *shardWork) work(shard int) error {
	if err := json.Unmarshal(w.run.Index, &w.index); err != nil {
		return fault.RunDamaged.New("the manifest of the run %s is damaged: %w", w.run.Dir, err)
	}
	work := cluster.Work{
		Shard: shard, NoClaim: w.job.options.Shard.NoClaim, LostAfter: w.job.options.Shard.ClaimAfter, Labels: shardLabels(),
		Compute: w.compute, Copy: w.copy, Notice: w.notice,
	}
	if w.job.options.Shard.Merge && !w.job.options.Shard.NoClaim {
		work.Stay = func() error { _, err := w.timeLeft(); return err }
	}
	var err error
	w.outcome, err = w.run.Work(w.session.ctx, work)
	var failed *cluster.MissingError
	if errors.As(err, &failed) && !w.session.silent {
		writeMissing(os.Stderr, w.run, failed)
	}
	if stopped := w.session.stops.got.Load(); err != nil && stopped != nil {
		var by *stoppedBy
		if !errors.As(err, &by) {
			err = &stoppedBy{err, *stopped}
		}
	}
	if err == nil && !w.session.silent {
		w.notice(w.summary())
	}
	return err
}

// summary says what this process has done, and what to do next.
func (w *shardWork) summary() string {
	text := "no shard was left to compute"
	if done := w.outcome.Computed; len(done) > 0 {
		slices.Sort(done)
		text = fmt.Sprintf("computed %s: %s", view.Plural(int64(len(done)), "shard"), cluster.ArrayText(done))
	}
	if w.outcome.Complete {
		text += fmt.Sprintf("; all %d are done", w.run.Shards)
		if !w.job.options.Shard.Merge {
			text += ": gpurun submit merge "
			if w.config.Output.Force {
				text += "--force "
			}
			text += w.run.Output
		}
	}
	return text
}

// notice shows a line between jobs.
func (w *shardWork) notice(text string) {
	if w.job.options.Events == "-" || w.session.silent {
		return
	}
	fmt.Fprintln(os.Stderr, "gpurun: "+text)
}

// unusable are the codes with which a job refuses what an earlier attempt has left.
var unusable = []fault.Code{fault.JobDamaged, fault.ExtraLines, fault.OutputExists, fault.OutputOfOtherFiles, fault.OutputWithFailures}

// compute computes one shard, resuming from the best of the earlier attempts.
func (w *shardWork) compute(ctx context.Context, a *cluster.Attempt) (cluster.Result, error) {
	config := w.config
	config.Input.Offset, config.Input.Limit = a.First, a.Records
	if a.Shard < len(w.index.Places) {
		config.Input.Place = &w.index.Places[a.Shard]
	}
	config.Input.Counts = w.index.Files
	config.Output.Path, config.Output.Errors, config.Output.Force = a.Output(), a.Errors(), false
	config.Output.Arrays = w.arrays(a)
	if config.Agreement = a.Agreement(ctx); w.run.Columns.IsTable() {
		config.Input.Table = w.run.Columns.Table
	}
	var err error
	if config.Resume.MaxTime, err = w.timeLeft(); err != nil {
		return cluster.Result{}, err
	}
	w.notice(fmt.Sprintf("shard %d of %d: records %d to %d", a.Shard, w.run.Shards, a.First, a.First+a.Records-1))
	limits, err := w.limit(a, &config)
	if err != nil {
		return cluster.Result{}, err
	}
	adopted := w.adopt(a.Earlier(), config)
	own := *w.session
	own.ctx, own.follow = ctx, showProgress(a)
	report, err := w.job.runJob(&own, config, orchestrator.Run)
	if e := fault.As(err); adopted && e != nil && slices.Contains(unusable, e.Code) {
		w.notice("what an earlier attempt has left cannot be used, and is computed again: " + e.Message)
		a.Discard()
		report, err = w.job.runJob(&own, config, orchestrator.Run)
	}
	w.concurrent = report.Concurrency > 0
	if err != nil && !errors.Is(err, errSomeFailed) {
		return cluster.Result{}, limits.explain(err)
	}
	return shardResult(ctx, report, config)
}

// arrays returns where an attempt writes the arrays.
func (w *shardWork) arrays(a *cluster.Attempt) []orchestrator.OutputArray {
	list := slices.Clone(w.config.Output.Arrays)
	for _, array := range w.run.Arrays {
		if !array.Mask { // the name of a mask follows
			list[array.Column].Path = a.Array(array)
		}
	}
	return list
}

// timeLeft returns what is left of the time limit of this process; 0 if there is none.
func (w *shardWork) timeLeft() (left time.Duration, err error) {
	limit := w.config.Resume.MaxTime
	if limit == 0 {
		return 0, nil
	}
	if left = (limit - time.Since(w.started)).Round(time.Second / 10); left <= 0 {
		err = fault.LimitReached.New("the time limit of %s is reached", limit)
	}
	return left, err
}

// copy implements cluster.Work.Copy. Nothing is sent to a server twice: requests cost money,
// and the server may be what is slow.
func (w *shardWork) copy(output string) (int64, bool) {
	if w.concurrent {
		return 0, false
	}
	records, _ := shards.Committed(output)
	return records, true
}

// adopt continues from the earlier attempt that has computed the most.
func (w *shardWork) adopt(earlier []string, config orchestrator.Config) bool {
	type found struct {
		output           string
		records, answers int64
	}
	var list []found
	for _, output := range earlier {
		if records, answers := shards.Committed(output); records+answers > 0 {
			list = append(list, found{output, records, answers})
		}
	}
	slices.SortStableFunc(list, func(a, b found) int { return cmp.Compare(b.records+b.answers, a.records+a.answers) })
	for _, one := range list {
		err := shards.Adopt(one.output, config)
		if err == nil {
			text := fmt.Sprintf("resuming from an earlier attempt, which has committed %d records", one.records)
			if one.answers > 0 {
				text += fmt.Sprintf(" and logged %d answers", one.answers)
			}
			w.notice(text)
			return true
		}
		w.notice("an earlier attempt cannot be resumed: " + err.Error())
	}
	return false
}

// showProgress shows other machines how far an attempt is.
func showProgress(a *cluster.Attempt) func(*view.Collector) {
	return func(job *view.Collector) {
		a.Follow(func() cluster.Progress {
			v := job.View()
			return cluster.Progress{Done: v.Done, Answers: v.Answers, Rate: v.AverageRate}
		})
	}
}

// shardResult describes a finished shard.
func shardResult(ctx context.Context, report orchestrator.Report, config orchestrator.Config) (cluster.Result, error) {
	result := cluster.Result{
		Counts:  chunk.Counts{Records: report.In, Succeeded: report.Succeeded, Failed: report.Failed, Dropped: report.Dropped},
		Skipped: len(report.SkippedInputs), Rate: report.Rate, Usage: report.Usage,
	}
	for _, a := range report.Arrays {
		result.Arrays = append(result.Arrays, chunk.FileSum{Bytes: a.Bytes, CRC: uint32(a.CRC32C)})
	}
	path := config.Output.Path
	if strings.HasSuffix(path, "/") {
		path = commit.ManifestPath(path)
	}
	var err error
	if report.OutputCRC32C != nil && path == config.Output.Path { // as its writer computed it
		result.Output = chunk.FileSum{Bytes: report.OutputBytes, CRC: uint32(*report.OutputCRC32C)}
	} else if result.Output, err = chunk.SumFile(ctx, path); err != nil {
		return result, fault.RunDamaged.Of(fault.Storage, "read the shard's output: %w", err)
	}
	if config.Output.Errors != "" {
		if result.Errors, err = chunk.SumFile(ctx, config.Output.Errors); err != nil && !errors.Is(err, os.ErrNotExist) {
			return result, fault.RunDamaged.Of(fault.Storage, "read the shard's errors file: %w", err)
		}
	}
	return result, nil
}

// merge merges the run, or waits for the process that does: if that one is lost, this one
// takes over. Success means that the output exists.
func (w *shardWork) merge() error {
	options := cluster.MergeOptions{
		Force: w.config.Output.Force, LostAfter: w.job.options.Shard.ClaimAfter, Labels: shardLabels(), Describe: describeMerged(w.session.ctx, w.run), Refit: refit(w.run),
	}
	merged, err := w.run.Merge(w.session.ctx, options)
	for errors.Is(err, cluster.ErrMerging) && !w.job.options.Shard.NoClaim { // Merge itself waits for signs of life
		merged, err = w.run.Merge(w.session.ctx, options)
	}
	if err == nil && !merged.Already {
		w.notice(mergedText(merged))
	}
	return err
}
