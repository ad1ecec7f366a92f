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

// page is a report as text.
type page struct {
	w io.Writer
	orchestrator.Report
	Hints
}

// line writes a line.
func (p *page) line(format string, args ...any) { fmt.Fprintf(p.w, "  "+format+"\n", args...) }

// WriteReport writes the report as text.
func WriteReport(w io.Writer, r orchestrator.Report, hints Hints) {
	p := &page{w, r, hints}
	if done := p.In - p.Pending; done > 0 && p.Stop == nil && p.Retried == 0 && p.Computed == 0 {
		fmt.Fprintf(w, "\nnothing left to do: %s already done\n", plural(done, "record"))
	} else {
		fmt.Fprintf(w, "\n%s in %s (%s%s)%s\n", p.computed(), durationText(p.Elapsed), rateText(p.Rate), p.loading(), p.retryResult())
	}
	p.line("%s in = %s succeeded + %s failed + %s dropped + %s pending",
		Count(p.In), Count(p.Succeeded), Count(p.Failed), Count(p.Dropped), Count(p.Pending))
	p.answers()
	if p.Uncounted {
		p.line("the rest of the input was not counted and is pending too")
	}
	if p.Blank > 0 {
		p.line("%s skipped", plural(p.Blank, "blank line"))
	}
	if p.Nulls > 0 {
		p.line("%s became null, since JSON has no NaN or infinity; such records can fail instead%s", plural(p.Nulls, "number"), p.Hint("", "nan error"))
	}
	p.usage()
	if p.Stop == nil || p.Stop.Kind != fault.Incompatible { // the figures of a kernel that fails on everything say nothing
		p.figures()
	}
	p.devices()
	p.failures()
	p.advice()
	p.next()
}

// figures writes how fast the job was, and why.
func (p *page) figures() {
	p.start()
	p.workers()
	if p.Padding > 0 {
		p.line("batches were grouped by %s: %.0f%% padding", plain(p.GroupBy), 100*p.Padding)
	}
	for _, s := range p.Scaling {
		if s.Reason != "" {
			p.line("%s", s)
		}
	}
	if l := p.Latency; l != nil && l.Batches > 1 {
		p.line("%s took %s (median), %s (99%%), at most %s", p.Unit, latencyText(l.P50), latencyText(l.P99), latencyText(l.Max))
	}
	if p.Bottleneck != nil {
		p.line("bottleneck: %s", p.Bottleneck.Text)
	}
}

// loading is how long the kernel took to open, if that is worth mentioning.
func (p *page) loading() string {
	if p.Load < time.Second || p.Rate == 0 {
		return ""
	}
	return " after loading for " + durationText(p.Load)
}

// start writes how the workers started, if that took long.
func (p *page) start() {
	s := p.Start
	if s == nil || s.First.Took() < time.Second {
		return
	}
	p.line("the first worker started in %s: %s", durationText(s.First.Took()), startText(s.First))
	if s.Typical != nil {
		each := ""
		if s.Further > 1 {
			each = " each (median)"
		}
		p.line("%s took %s%s: %s", plural(int64(s.Further), "further worker"), durationText(s.Typical.Took()), each, startText(*s.Typical))
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

// computed is what this run spent its time on, without the work of earlier runs.
func (p *page) computed() string {
	n := p.Computed
	switch {
	case p.Retried > 0:
		return "retried " + plural(p.Retried, "failed record")
	case n == 0 && p.Stop != nil:
		return "no records computed"
	case n < p.In-p.Pending+p.Answers:
		return plural(n, "more record")
	}
	return plural(n, "record")
}

// answers writes how many pending records have an answer already.
func (p *page) answers() {
	if p.Answers > 0 {
		p.line("%s", AnswersText(p.Answers))
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
func (p *page) retryResult() string {
	if p.Retried == 0 {
		return ""
	}
	failed := max(0, min(p.Failed-p.passed(), p.Retried))
	succeeded := "succeeded"
	if p.Dropped > 0 { // the report does not say by which run
		succeeded += " or were dropped"
	}
	if failed == 0 {
		return fmt.Sprintf(": %s %s", Count(p.Retried), succeeded)
	}
	return fmt.Sprintf(": %s %s, %s failed again", Count(p.Retried-failed), succeeded, Count(failed))
}

// passed is how many records came in with an "_error". They count as failed, and a retry
// passes them through again.
func (p *page) passed() (n int64) {
	for _, f := range p.Failures {
		if f.Kind == fault.Upstream.String() {
			n += f.Count
		}
	}
	return n
}

// devices writes a line for each GPU with known figures, and recommendations.
func (p *page) devices() {
	for _, d := range p.Devices {
		if facts := deviceFacts(d); len(facts) > 0 {
			p.line("%s: %s", d.Device, strings.Join(facts, ", "))
		}
	}
	for _, line := range p.Recommendations {
		text := line.Text
		if line.Setting != "" {
			text += p.Hint("", line.Setting)
		}
		p.line("hint: %s", text)
	}
}

func deviceFacts(d orchestrator.DeviceReport) (facts []string) {
	add := func(format string, args ...any) { facts = append(facts, fmt.Sprintf(format, args...)) }
	if celsius, known := d.PeakTemperature.Get(); known {
		add("up to %d°C", celsius)
	}
	if d.Throttled > 0 {
		text := "slowed for " + durationText(d.Throttled)
		if d.ForMemory > 0 {
			text += ", of which " + durationText(d.ForMemory) + " because of others' memory"
		}
		facts = append(facts, text)
	}
	if d.HeatSlowed > 0 {
		add("lowered its clocks because of heat for %s", durationText(d.HeatSlowed))
	}
	if d.PowerCapped > 0 {
		add("at its power limit for %s", durationText(d.PowerCapped))
	}
	if percent, known := d.PeakMemory.Get(); known {
		add("%.0f%% of memory", percent)
	}
	if percent, known := d.Utilization.Get(); known {
		add("%.0f%% load", percent)
	}
	if joule, known := d.Energy.Get(); known && joule > 0 {
		add("%.1f Wh", float64(joule)/3600)
	}
	if d.Problem != "" {
		add("%s", plain(d.Problem))
	}
	return facts
}

// advice suggests the batch size that most workers found to be the fastest.
func (p *page) advice() {
	count := make(map[int]int)
	best := 0
	for _, worker := range p.Workers {
		if size := worker.BatchSize; size > 0 {
			if count[size]++; best == 0 || count[size] > count[best] {
				best = size
			}
		}
	}
	if best > 0 {
		p.line("batches of %s were the fastest: use them next time%s", Count(int64(best)), p.Hint("", fmt.Sprintf("batch-size %d", best)))
	}
}

// WriteCommitted writes what an unfinished job has committed so far.
func WriteCommitted(w io.Writer, r orchestrator.Report, hints Hints) {
	p := &page{w, r, hints}
	total := "records"
	if p.In > 0 && !p.Uncounted {
		total = fmt.Sprintf("of %s records", Count(p.In))
	}
	p.line("%s %s committed: %s succeeded, %s failed, %s dropped",
		Count(p.In-p.Pending), total, Count(p.Succeeded), Count(p.Failed), Count(p.Dropped))
	p.answers()
	p.failures()
	if p.Stop != nil {
		p.line("the last run stopped: %s%s", plain(p.Stop.Message), p.Hint(p.Stop.Code, p.Stop.Value))
	}
	p.line("logs are in %s", InFolder(r, "logs"))
}

// shownCauses limits how many causes of failures are shown; failures.jsonl has all.
const shownCauses = 5

// shownSkips limits how many skipped inputs are shown; the report has all.
const shownSkips = 5

// failures lists the inputs that were skipped, and the causes of failures, the most
// frequent first.
func (p *page) failures() {
	for _, s := range p.SkippedInputs[:min(len(p.SkippedInputs), shownSkips)] {
		p.line("skipped the rest of %s, from %s %s on: %s", plain(s.File), chunk.Unit(s.Rows), Count(s.Line), shorten(plain(s.Message), exampleWidth))
	}
	if more := len(p.SkippedInputs) - shownSkips; more > 0 {
		p.line("skipped the rest of %s more", plural(int64(more), "file"))
	}
	causes, rest := p.Causes, p.Failed
	for _, f := range causes[:min(len(causes), shownCauses)] {
		remedy := p.Hint(fault.Code(f.Code), f.Value)
		where := ""
		if f.File != "" {
			where = " of " + plain(f.File)
		}
		p.line("%s failed (%s), first at %s %s%s: %s%s", plural(f.Count, "record"), f.Kind, chunk.Unit(f.Rows), Count(f.Line), where, shorten(plain(f.Example), exampleWidth), remedy)
		rest -= f.Count
	}
	if rest > 0 && len(causes) > 0 {
		p.line("%s failed for other reasons", plural(rest, "record"))
	}
}

// WriteFailed writes the failures, for when no report is shown.
func WriteFailed(w io.Writer, r orchestrator.Report, hints Hints) {
	p := &page{w, r, hints}
	fmt.Fprintf(w, "%s of %s records failed\n", Count(p.Failed), Count(p.In))
	p.failures()
	p.next()
}

// workers writes a table: names left-aligned, numbers right-aligned.
func (p *page) workers() {
	if p.In == 0 {
		return
	}
	var table [][]string
	var widths []int
	for _, worker := range p.Workers {
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
		row := fmt.Sprintf("%-*s", widths[0], cells[0])
		for i, cell := range cells[1:] {
			width := 0
			if i+1 < len(widths) {
				width = widths[i+1]
			}
			row += fmt.Sprintf("%s%*s", gap, width, cell)
		}
		p.line("%s", strings.TrimRight(row, " "))
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

// next writes where the results are and what to run next.
func (p *page) next() {
	output := p.Output
	if output == "-" {
		output = "the output"
	}
	missing := p.Pending - p.Answers
	switch {
	case p.Stop != nil && p.Uncounted && missing == 0:
		p.line("stopped: the rest of the input is not computed")
	case p.Stop != nil && p.Uncounted:
		p.line("stopped: more than %s not computed", plural(missing, "record"))
	case p.Stop != nil && missing > 0:
		p.line("stopped: %s not computed", plural(missing, "record"))
	case p.Stop == nil && p.Failed > 0:
		where := `records are marked with "_error" in ` + output
		if p.Errors != "" {
			where = "records are in " + p.Errors
		} else if p.Format == orchestrator.OpenAIBatch {
			where = `requests have an "error" in ` + output
		}
		p.line("the failed %s, details in %s", where, InFolder(p.Report, "failures.jsonl"))
		p.retry()
	}
	if p.Stop == nil && p.Output != "-" {
		p.line("→ %s", strings.Join(p.outputs(), ", "))
	}
}

// outputs returns the files that the job has written.
func (p *page) outputs() []string {
	paths := []string{p.Output}
	for _, array := range p.Arrays {
		paths = append(paths, array.Path)
	}
	return paths
}

// retry writes how to compute failed records again: those that failed in this job, and
// those that it has only passed through.
func (p *page) retry() {
	upstream := p.passed()
	switch command := p.Retry(p.Report); {
	case upstream < p.Failed && command == "":
	case upstream == 0:
		p.line("to retry them: %s", command)
	case upstream < p.Failed:
		p.line("to retry %s of them: %s", Count(p.Failed-upstream), command)
	}
	if upstream > 0 {
		p.line("%s came with an _error: correct the input, retry the earlier job, or compute them here%s", plural(upstream, "record"), p.Hint("", "reprocess"))
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
