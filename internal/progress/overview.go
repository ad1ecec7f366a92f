package progress

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/host"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/view"
)

// NewTable aligns cells, which tabs separate, until it is flushed.
func NewTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// WriteOverview prints a host: a line for each GPU and one for each running job.
func WriteOverview(w io.Writer, o host.Overview) {
	head := o.Host + "  " + o.Time.Local().Format(time.DateTime)
	if o.DriverVersion != "" {
		head += "  driver " + o.DriverVersion
	}
	fmt.Fprintln(w, head)
	for _, note := range o.Notes {
		fmt.Fprintln(w, plain(note))
	}
	table := NewTable(w)
	for _, g := range o.GPUs {
		fmt.Fprintln(table, strings.Join(gpuRow(g), "\t"))
	}
	_ = table.Flush()
	for _, warm := range o.Warm {
		how := fmt.Sprintf("%d workers use it", warm.Children)
		if warm.Children == 0 {
			how = fmt.Sprintf("ends in %s", warm.Left.Round(time.Second))
		}
		fmt.Fprintf(w, "warm: %s, %d MB, %s\n", plain(warm.About), warm.Memory/lease.MiB, how)
	}
	if len(o.Jobs) == 0 {
		fmt.Fprintln(w, "no job is running")
		return
	}
	for _, job := range o.Jobs {
		fmt.Fprintln(table, strings.Join(jobRow(job), "\t"))
	}
	_ = table.Flush()
}

// gpuRow returns the cells of a GPU's line. A value that the card does not report is a
// dash, never 0.
func gpuRow(g host.GPU) []string {
	place := "[" + g.ID() + "]"
	if why := g.Lost + g.Problem; why != "" && g.Sample.Time.IsZero() {
		return []string{place, g.Name, g.State, plain(why)}
	}
	memory := "-"
	if g.Memory > 0 {
		memory = fmt.Sprintf("%d / %d MB", g.MemoryUsed/lease.MiB, g.Memory/lease.MiB)
	}
	power := "-"
	if watts, known := g.Sample.Power.Get(); known {
		power = fmt.Sprintf("%.0f W", watts)
		if most, known := g.Sample.PowerLimit.Get(); known {
			power = fmt.Sprintf("%.0f / %.0f W", watts, most)
		}
	}
	slots := "no slots"
	if g.Slots > 0 {
		slots = fmt.Sprintf("%d/%d slots", g.Active, g.Slots)
	}
	row := []string{
		place, g.Name, g.State, optional(g.Sample.Utilization, "%"), optional(g.Sample.Temperature, " °C"),
		power, memory, slots, holdersText(g.Account),
	}
	if g.MPS != "" {
		row = append(row, "MPS")
	}
	if g.Problem != "" {
		row = append(row, plain(g.Problem))
	}
	return row
}

func optional(value gpu.Optional[int], unit string) string {
	if n, known := value.Get(); known {
		return strconv.Itoa(n) + unit
	}
	return "-"
}

// holdersText lists the holders of a GPU: "nightly (all of it)", "a 4096 MiB, b 2048 MiB".
func holdersText(a lease.Account) string {
	var parts []string
	for _, l := range a.Leases {
		if l.Exclusive {
			parts = append(parts, l.Name+" (all of it)")
		} else {
			parts = append(parts, l.Name+" "+l.Share())
		}
	}
	if len(parts) == 0 {
		return "free"
	}
	return strings.Join(parts, ", ")
}

// jobRow returns the cells of a job's line.
func jobRow(job jobs.State) []string {
	name := job.Job.ID
	if job.Job.Name != "" {
		name += " " + job.Job.Name
	}
	if job.Trouble != "" {
		return []string{name, plain(job.Trouble)}
	}
	reached := job.Reached()
	done, share := Count(reached), ""
	switch size, about := job.Size(); {
	case about:
		share = fmt.Sprintf("about %.0f%%", 100*float64(reached)/float64(size))
	case size > 0:
		share = fmt.Sprintf("%.1f%%", 100*float64(reached)/float64(size))
		fallthrough
	case size == 0:
		done = countText(reached, size, false)
	}
	rest := remaining(job.View)
	switch {
	case job.Phase != view.PhaseRunning:
	case job.AllIn(view.PhasePaused):
		rest = "paused by heat"
	default: // all workers start, or wait for a server
		for _, p := range []view.Phase{view.PhaseHeld, view.PhaseOpening, view.PhaseImporting, view.PhaseLoading, view.PhaseFirstBatch} {
			if job.AllIn(p) {
				rest = cmp.Or(phaseTexts[p], string(p))
			}
		}
	}
	var slots []string
	for _, w := range job.Workers {
		slots = append(slots, w.Name)
	}
	return []string{name, string(job.Phase), share, done, rateText(job.Rate), rest, cmp.Or(slotNames(slots), "-"), filepath.Base(job.Job.Output)}
}

// WriteLeases prints leases, one per line.
func WriteLeases(w io.Writer, leases []lease.Lease, now time.Time) {
	table := NewTable(w)
	for _, l := range leases {
		ends := "until deallocated"
		switch {
		case l.Owned && !l.Expires.IsZero():
			ends = fmt.Sprintf("for another %s, or until %s ends", durationText(l.Expires.Sub(now)), l.Holder())
		case l.Owned:
			ends = fmt.Sprintf("until %s ends", l.Holder())
		case !l.Expires.IsZero():
			ends = "for another " + durationText(l.Expires.Sub(now))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\tsince %s\n", l.Label, l.Name, l.Share(), l.User, ends, l.Created.Local().Format("15:04:05"))
	}
	_ = table.Flush()
}
