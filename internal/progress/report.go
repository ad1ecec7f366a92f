package progress

import (
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

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
		fmt.Fprintf(w, "  failed, %s: %s, the first in line %s: %s\n", f.Kind, plural(f.Count, "record"), Count(f.Line), f.Example)
	}
	writeNext(w, r)
}

func writeWorkers(w io.Writer, r orchestrator.Report) {
	if len(r.Workers) == 0 || r.In == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, worker := range r.Workers {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%.0f %% busy\t%s%s\n", worker.Device,
			plural(worker.Records, "record"), rateText(worker.Rate), 100*worker.BusyShare,
			batches(worker.Batches), workerTrouble(worker))
	}
	_ = table.Flush()
}

func workerTrouble(worker orchestrator.WorkerReport) string {
	text := ""
	if worker.Restarts > 0 {
		text += fmt.Sprintf("\t%s", plural(worker.Restarts, "kernel restart"))
	}
	if worker.Lost > 0 {
		text += fmt.Sprintf("\t%s lost", plural(worker.Lost, "worker"))
	}
	if worker.Retired {
		text += "\tretired"
	}
	return text
}

// writeNext says where things are and what to type next.
func writeNext(w io.Writer, r orchestrator.Report) {
	switch {
	case r.Stop != nil && r.Stop.Kind == fault.Canceled && r.Pending > 0:
		fmt.Fprintf(w, "  stopped: %s not computed; what was is in %s\n",
			plural(r.Pending, "record"), filepath.Join(r.Folder, "output.partial"))
	case r.Stop == nil && r.Failed > 0 && r.Errors != "":
		fmt.Fprintf(w, "  the failed records are in %s, more about each in %s\n", r.Errors, filepath.Join(r.Folder, "failures.jsonl"))
	case r.Stop == nil && r.Failed > 0:
		fmt.Fprintf(w, "  the failed records stand in %s with an \"_error\", more about each in %s\n", r.Output, filepath.Join(r.Folder, "failures.jsonl"))
	}
	if r.Stop == nil && r.Output != "-" {
		fmt.Fprintf(w, "  → %s\n", r.Output)
	}
}

func batches(n int64) string {
	if n == 1 {
		return "1 batch"
	}
	return Count(n) + " batches"
}
