package progress

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/orchestrator"
)

// exampleWidth is how much of a failure's message is shown: some kernels send a
// whole traceback. All of it is in failures.jsonl.
const exampleWidth = 200

// WriteReport writes the report for people.
func WriteReport(w io.Writer, r orchestrator.Report) {
	fmt.Fprintf(w, "\n%s in %s (%s)\n", plural(r.In-r.Pending, "record"), durationText(r.Elapsed), rateText(r.Rate))
	fmt.Fprintf(w, "  %s in = %s succeeded + %s failed + %s dropped + %s pending\n",
		Count(r.In), Count(r.Succeeded), Count(r.Failed), Count(r.Dropped), Count(r.Pending))
	if r.Blank > 0 {
		fmt.Fprintf(w, "  %s skipped\n", plural(r.Blank, "blank line"))
	}
	writeWorkers(w, r)
	for _, f := range r.Failures {
		fmt.Fprintf(w, "  %s failed (%s), the first in line %s: %s\n", plural(f.Count, "record"), f.Kind, Count(f.Line), shorten(plain(f.Example), exampleWidth))
	}
	writeNext(w, r)
}

// writeWorkers is a table: names to the left, numbers to the right.
func writeWorkers(w io.Writer, r orchestrator.Report) {
	if r.In == 0 {
		return
	}
	var table [][]string
	var widths []int
	for _, worker := range r.Workers {
		cells := []string{
			worker.Device, plural(worker.Records, "record"), rateText(worker.Rate),
			fmt.Sprintf("%.0f %% busy", 100*worker.BusyShare), batches(worker.Batches),
		}
		for i, cell := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], textWidth(cell))
		}
		table = append(table, append(cells, trouble(worker)...))
	}
	for _, cells := range table {
		fmt.Fprintf(w, "  %-*s", widths[0], cells[0])
		for i, cell := range cells[1:] {
			width := 0
			if i+1 < len(widths) {
				width = widths[i+1]
			}
			fmt.Fprintf(w, "%s%*s", gap, width, cell)
		}
		fmt.Fprintln(w)
	}
}

// trouble is what went wrong with a worker.
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

// writeNext says where things are and what to type next.
func writeNext(w io.Writer, r orchestrator.Report) {
	output := r.Output
	if output == "-" {
		output = "the output"
	}
	switch {
	case r.Stop != nil && r.Pending > 0:
		fmt.Fprintf(w, "  stopped: %s not computed%s\n", plural(r.Pending, "record"), whereSoFar(r))
	case r.Stop == nil && r.Failed > 0 && r.Errors != "":
		fmt.Fprintf(w, "  the failed records are in %s, more about each in %s\n", r.Errors, inFolder(r, "failures.jsonl"))
	case r.Stop == nil && r.Failed > 0:
		fmt.Fprintf(w, "  the failed records stand in %s with an \"_error\", more about each in %s\n", output, inFolder(r, "failures.jsonl"))
	}
	if r.Stop == nil && r.Output != "-" {
		fmt.Fprintf(w, "  → %s\n", r.Output)
	}
}

// whereSoFar is where the records of a stopped job are. What went to a pipe or a
// device is there, and nowhere else.
func whereSoFar(r orchestrator.Report) string {
	const partial = "output.partial"
	if _, err := os.Stat(filepath.Join(r.Folder, partial)); err != nil {
		return ""
	}
	return "; what was is in " + inFolder(r, partial)
}

func batches(n int64) string {
	if n == 1 {
		return "1 batch"
	}
	return Count(n) + " batches"
}

// inFolder names a file of the job's folder as a person would, from here.
func inFolder(r orchestrator.Report, name string) string {
	path := filepath.Join(r.Folder, name)
	if here, err := os.Getwd(); err == nil {
		if near, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(near) {
			return near
		}
	}
	return path
}
