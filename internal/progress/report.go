package progress

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// exampleWidth limits how much of a failure's message is shown: some kernels send a whole
// traceback. failures.jsonl has all of it.
const exampleWidth = 200

// Hints are the flags and commands that complete a report; only the command knows them.
type Hints interface {
	// Hint returns what to append to a message with this code, "" if nothing.
	Hint(code orchestrator.Code, value string) string
	// Retry returns the command that retries the failed records of a job; "" if none can.
	Retry(orchestrator.Report) string
}

// WriteReport writes the report as text.
func WriteReport(w io.Writer, r orchestrator.Report, hints Hints) {
	if done := r.In - r.Pending; done > 0 && r.Stop == nil && r.Retried == 0 && r.Computed == 0 {
		fmt.Fprintf(w, "\nnothing left to do: %s already done\n", plural(done, "record"))
	} else {
		fmt.Fprintf(w, "\n%s in %s (%s%s)%s\n", computed(r), durationText(r.Elapsed), rateText(r.Rate), loading(r), retryResult(r))
	}
	fmt.Fprintf(w, "  %s in = %s succeeded + %s failed + %s dropped + %s pending\n",
		Count(r.In), Count(r.Succeeded), Count(r.Failed), Count(r.Dropped), Count(r.Pending))
	writeAnswers(w, r)
	if r.Uncounted {
		fmt.Fprintln(w, "  the rest of the input was not counted and is pending too")
	}
	if r.Blank > 0 {
		fmt.Fprintf(w, "  %s skipped\n", plural(r.Blank, "blank line"))
	}
	if r.Nulls > 0 {
		fmt.Fprintf(w, "  %s became null, since JSON has no NaN or infinity; such records can fail instead%s\n", plural(r.Nulls, "number"), setting(hints, "nan error"))
	}
	writeUsage(w, r)
	if r.Stop == nil || r.Stop.Kind != fault.Incompatible { // the figures of a kernel that fails on everything say nothing
		writeFigures(w, r)
	}
	writeDevices(w, r, hints)
	writeFailures(w, r, hints)
	writeAdvice(w, r, hints)
	writeNext(w, r, hints)
}

// writeFigures writes how fast the job was, and why.
func writeFigures(w io.Writer, r orchestrator.Report) {
	writeStart(w, r.Start)
	writeWorkers(w, r)
	if r.Padding > 0 {
		fmt.Fprintf(w, "  batches were grouped by %s: %.0f%% padding\n", plain(r.GroupBy), 100*r.Padding)
	}
	for _, s := range r.Scaling {
		if s.Reason != "" {
			fmt.Fprintf(w, "  %s\n", s)
		}
	}
	if l := r.Latency; l != nil && l.Batches > 1 {
		fmt.Fprintf(w, "  %s took %s (median), %s (99%%), at most %s\n", r.Unit, latencyText(l.P50), latencyText(l.P99), latencyText(l.Max))
	}
	if r.Bottleneck != nil {
		fmt.Fprintf(w, "  bottleneck: %s\n", r.Bottleneck.Text)
	}
}

// loading is how long the kernel took to open, if that is worth mentioning.
func loading(r orchestrator.Report) string {
	if r.Load < time.Second || r.Rate == 0 {
		return ""
	}
	return " after loading for " + durationText(r.Load)
}

// writeStart writes how the workers started, if that took long.
func writeStart(w io.Writer, s *orchestrator.StartReport) {
	if s == nil || s.First.Took() < time.Second {
		return
	}
	fmt.Fprintf(w, "  the first worker started in %s: %s\n", durationText(s.First.Took()), startText(s.First))
	if s.Typical != nil {
		each := ""
		if s.Further > 1 {
			each = " each (median)"
		}
		fmt.Fprintf(w, "  %s took %s%s: %s\n", plural(int64(s.Further), "further worker"), durationText(s.Typical.Took()), each, startText(*s.Typical))
	}
}

// startText lists the phases of a start, and the slowest imports.
func startText(s orchestrator.Start) string {
	var parts []string
	for _, phase := range []struct {
		name string
		took time.Duration
	}{{"importing", s.Importing}, {"loading the model", s.Loading}, {"first batch", s.FirstBatch}} {
		if phase.took == 0 {
			continue
		}
		parts = append(parts, phase.name+" "+durationText(phase.took))
		if phase.name == "importing" && len(s.Imports.Slowest) > 0 {
			var slowest []string
			for _, one := range s.Imports.Slowest {
				slowest = append(slowest, plain(one.Name)+" "+durationText(one.Took))
			}
			parts[len(parts)-1] += " (" + strings.Join(slowest, ", ") + ")"
		}
	}
	return strings.Join(parts, ", ")
}

// setting returns the hint to change a setting.
func setting(hints Hints, value string) string {
	return hints.Hint("", value)
}

// computed is what this run spent its time on, without the work of earlier runs.
func computed(r orchestrator.Report) string {
	n := r.Computed
	switch {
	case r.Retried > 0:
		return "retried " + plural(r.Retried, "failed record")
	case n == 0 && r.Stop != nil:
		return "no records computed"
	case n < r.In-r.Pending+r.Answers:
		return plural(n, "more record")
	}
	return plural(n, "record")
}

// writeAnswers writes how many pending records have an answer already.
func writeAnswers(w io.Writer, r orchestrator.Report) {
	if r.Answers > 0 {
		fmt.Fprintf(w, "  %s\n", AnswersText(r.Answers))
	}
}

// AnswersText says that pending records have an answer already.
func AnswersText(answers int64) string {
	if answers == 1 {
		return "1 answer of the pending records is logged and is not sent again"
	}
	return plural(answers, "answer") + " of the pending records are logged and are not sent again"
}

// retryResult is how many of the retried records failed again, "" if none were retried.
// Records that came in with an "_error" are counted as failed but never retried.
func retryResult(r orchestrator.Report) string {
	if r.Retried == 0 {
		return ""
	}
	failed := max(0, min(r.Failed-passed(r), r.Retried))
	succeeded := "succeeded"
	if r.Dropped > 0 { // the report does not say by which run
		succeeded += " or were dropped"
	}
	if failed == 0 {
		return fmt.Sprintf(": %s %s", Count(r.Retried), succeeded)
	}
	return fmt.Sprintf(": %s %s, %s failed again", Count(r.Retried-failed), succeeded, Count(failed))
}

// passed is how many records came in with an "_error". They count as failed, and a retry
// passes them through again.
func passed(r orchestrator.Report) (n int64) {
	for _, f := range r.Failures {
		if f.Kind == fault.Upstream.String() {
			n += f.Count
		}
	}
	return n
}

// writeDevices writes a line for each GPU with known figures, and recommendations.
func writeDevices(w io.Writer, r orchestrator.Report, hints Hints) {
	for _, d := range r.Devices {
		if facts := deviceFacts(d); len(facts) > 0 {
			fmt.Fprintf(w, "  %s: %s\n", d.Device, strings.Join(facts, ", "))
		}
	}
	for _, line := range r.Recommendations {
		text := line.Text
		if line.Setting != "" {
			text += setting(hints, line.Setting)
		}
		fmt.Fprintf(w, "  hint: %s\n", text)
	}
}

func deviceFacts(d orchestrator.DeviceReport) (facts []string) {
	if celsius, known := d.PeakTemperature.Get(); known {
		facts = append(facts, fmt.Sprintf("up to %d°C", celsius))
	}
	if d.Throttled > 0 {
		text := "slowed for " + durationText(d.Throttled)
		if d.ForMemory > 0 {
			text += ", of which " + durationText(d.ForMemory) + " because of others' memory"
		}
		facts = append(facts, text)
	}
	if d.HeatSlowed > 0 {
		facts = append(facts, "lowered its clocks because of heat for "+durationText(d.HeatSlowed))
	}
	if d.PowerCapped > 0 {
		facts = append(facts, "at its power limit for "+durationText(d.PowerCapped))
	}
	if percent, known := d.PeakMemory.Get(); known {
		facts = append(facts, fmt.Sprintf("%.0f%% of memory", percent))
	}
	if percent, known := d.Utilization.Get(); known {
		facts = append(facts, fmt.Sprintf("%.0f%% load", percent))
	}
	if joule, known := d.Energy.Get(); known && joule > 0 {
		facts = append(facts, fmt.Sprintf("%.1f Wh", float64(joule)/3600))
	}
	if d.Problem != "" {
		facts = append(facts, plain(d.Problem))
	}
	return facts
}

// writeAdvice suggests the batch size that most workers found to be the fastest.
func writeAdvice(w io.Writer, r orchestrator.Report, hints Hints) {
	count := make(map[int]int)
	best := 0
	for _, worker := range r.Workers {
		if size := worker.BatchSize; size > 0 {
			if count[size]++; best == 0 || count[size] > count[best] {
				best = size
			}
		}
	}
	if best > 0 {
		fmt.Fprintf(w, "  batches of %s were the fastest: use them next time%s\n", Count(int64(best)), setting(hints, fmt.Sprintf("batch-size %d", best)))
	}
}

// WriteCommitted writes what an unfinished job has committed so far.
func WriteCommitted(w io.Writer, r orchestrator.Report, hints Hints) {
	total := "records"
	if r.In > 0 && !r.Uncounted {
		total = fmt.Sprintf("of %s records", Count(r.In))
	}
	fmt.Fprintf(w, "  %s %s committed: %s succeeded, %s failed, %s dropped\n",
		Count(r.In-r.Pending), total, Count(r.Succeeded), Count(r.Failed), Count(r.Dropped))
	writeAnswers(w, r)
	writeFailures(w, r, hints)
	if r.Stop != nil {
		fmt.Fprintf(w, "  the last run stopped: %s%s\n", plain(r.Stop.Message), hints.Hint(r.Stop.Code, r.Stop.Value))
	}
	fmt.Fprintf(w, "  logs are in %s\n", InFolder(r, "logs"))
}

// shownCauses limits how many causes of failures are shown; failures.jsonl has all.
const shownCauses = 5

// shownSkips limits how many skipped inputs are shown; the report has all.
const shownSkips = 5

// writeFailures lists the inputs that were skipped, and the causes of failures, the most
// frequent first.
func writeFailures(w io.Writer, r orchestrator.Report, hints Hints) {
	for _, s := range r.SkippedInputs[:min(len(r.SkippedInputs), shownSkips)] {
		fmt.Fprintf(w, "  skipped the rest of %s, from %s %s on: %s\n", plain(s.File), chunk.Unit(s.Rows), Count(s.Line), shorten(plain(s.Message), exampleWidth))
	}
	if more := len(r.SkippedInputs) - shownSkips; more > 0 {
		fmt.Fprintf(w, "  skipped the rest of %s more\n", plural(int64(more), "file"))
	}
	causes, rest := r.Causes, r.Failed
	for _, f := range causes[:min(len(causes), shownCauses)] {
		remedy := hints.Hint(fault.Code(f.Code), f.Value)
		where := ""
		if f.File != "" {
			where = " of " + plain(f.File)
		}
		fmt.Fprintf(w, "  %s failed (%s), first at %s %s%s: %s%s\n", plural(f.Count, "record"), f.Kind, chunk.Unit(f.Rows), Count(f.Line), where, shorten(plain(f.Example), exampleWidth), remedy)
		rest -= f.Count
	}
	if rest > 0 && len(causes) > 0 {
		fmt.Fprintf(w, "  %s failed for other reasons\n", plural(rest, "record"))
	}
}

// WriteFailed writes the failures, for when no report is shown.
func WriteFailed(w io.Writer, r orchestrator.Report, hints Hints) {
	fmt.Fprintf(w, "%s of %s records failed\n", Count(r.Failed), Count(r.In))
	writeFailures(w, r, hints)
	writeNext(w, r, hints)
}

// writeWorkers writes a table: names left-aligned, numbers right-aligned.
func writeWorkers(w io.Writer, r orchestrator.Report) {
	if r.In == 0 {
		return
	}
	var table [][]string
	var widths []int
	for _, worker := range r.Workers {
		batches := ""
		if worker.Batches > 0 { // a kernel that computes records one by one has none
			batches = plural(worker.Batches, "batch")
		}
		cells := []string{worker.Device, plural(worker.Records, "record"), rateText(worker.Rate), busyText(worker), batches}
		for i, cell := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], textWidth(cell))
		}
		table = append(table, append(cells, trouble(worker)...))
	}
	for _, cells := range table {
		row := fmt.Sprintf("  %-*s", widths[0], cells[0])
		for i, cell := range cells[1:] {
			width := 0
			if i+1 < len(widths) {
				width = widths[i+1]
			}
			row += fmt.Sprintf("%s%*s", gap, width, cell)
		}
		fmt.Fprintln(w, strings.TrimRight(row, " "))
	}
}

// busyText is how busy a worker's kernel was. A worker reports this only when it commits records.
func busyText(worker orchestrator.WorkerReport) string {
	if worker.BusyShare == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f%% busy", 100*worker.BusyShare)
}

// trouble lists what went wrong with a worker.
func trouble(worker orchestrator.WorkerReport) []string {
	var parts []string
	if worker.Restarts > 0 {
		parts = append(parts, plural(worker.Restarts, "kernel restart"))
	}
	if worker.Lost > 0 {
		parts = append(parts, plural(worker.Lost, "worker")+" lost")
	}
	if worker.Retired {
		parts = append(parts, "retired")
	}
	return parts
}

// writeNext writes where the results are and what to run next.
func writeNext(w io.Writer, r orchestrator.Report, hints Hints) {
	output := r.Output
	if output == "-" {
		output = "the output"
	}
	missing := r.Pending - r.Answers
	switch {
	case r.Stop != nil && r.Uncounted && missing == 0:
		fmt.Fprintln(w, "  stopped: the rest of the input is not computed")
	case r.Stop != nil && r.Uncounted:
		fmt.Fprintf(w, "  stopped: more than %s not computed\n", plural(missing, "record"))
	case r.Stop != nil && missing > 0:
		fmt.Fprintf(w, "  stopped: %s not computed\n", plural(missing, "record"))
	case r.Stop == nil && r.Failed > 0:
		where := `records are marked with "_error" in ` + output
		if r.Errors != "" {
			where = "records are in " + r.Errors
		} else if r.Format == orchestrator.OpenAIBatch {
			where = `requests have an "error" in ` + output
		}
		fmt.Fprintf(w, "  the failed %s, details in %s\n", where, InFolder(r, "failures.jsonl"))
		writeRetry(w, r, hints)
	}
	if r.Stop == nil && r.Output != "-" {
		fmt.Fprintf(w, "  → %s\n", strings.Join(outputs(r), ", "))
	}
}

// outputs returns the files that the job has written.
func outputs(r orchestrator.Report) []string {
	paths := []string{r.Output}
	for _, array := range r.Arrays {
		paths = append(paths, array.Path)
	}
	return paths
}

// writeRetry writes how to compute failed records again: those that failed in this job, and
// those that it has only passed through.
func writeRetry(w io.Writer, r orchestrator.Report, hints Hints) {
	upstream := passed(r)
	switch command := hints.Retry(r); {
	case upstream < r.Failed && command == "":
	case upstream == 0:
		fmt.Fprintf(w, "  to retry them: %s\n", command)
	case upstream < r.Failed:
		fmt.Fprintf(w, "  to retry %s of them: %s\n", Count(r.Failed-upstream), command)
	}
	if upstream > 0 {
		fmt.Fprintf(w, "  %s came with an _error: correct the input, retry the earlier job, or compute them here%s\n", plural(upstream, "record"), setting(hints, "reprocess"))
	}
}

// AfterStop describes how to resume a stopped job; "" if the reason for the stop already
// does.
func AfterStop(r orchestrator.Report) string {
	switch r.Resume {
	case orchestrator.ResumesAtOnce:
		return "run the same command to resume"
	case orchestrator.ResumesWhenFixed:
		return "once that is fixed, run the same command to resume"
	case orchestrator.ResumesSameStream:
		return "run the same command to resume; its input is a stream, which must deliver the same bytes again"
	case orchestrator.ResumesNever:
		text := fmt.Sprintf("this job cannot be resumed: %s", r.Unresumable)
		if !r.Streamed && r.OutputBytes > 0 {
			text += fmt.Sprintf(" (its partial output is in %s)", InFolder(r, "output.partial"))
		}
		return text
	}
	return ""
}

// InFolder returns the path of a file in the job folder, relative to the working directory
// if it is below it.
func InFolder(r orchestrator.Report, name string) string {
	path := filepath.Join(r.Folder, name)
	if here, err := os.Getwd(); err == nil {
		if relative, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(relative) {
			return relative
		}
	}
	return path
}
