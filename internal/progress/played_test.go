package progress

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// played is a job whose events a test plays. It completes them as a job does: with the process
// of a worker, and with the records that it has computed.
type played struct {
	*view.Collector
	booked, current map[int]int64 // records by slot
}

func newPlayed(now func() time.Time) played {
	return played{view.NewCollector(now), make(map[int]int64), make(map[int]int64)}
}

func (p played) complete(event orchestrator.Event) orchestrator.Event {
	switch e := event.(type) {
	case orchestrator.WorkerStarted:
		e.PID = 4711 + e.Slot
		return e
	case orchestrator.Progress:
		p.current[e.Slot] = e.Chunk.Records
		if e.Held == 0 {
			e.Computed = p.booked[e.Slot] + p.current[e.Slot]
		}
		return e
	case orchestrator.ChunkDone:
		p.booked[e.Slot], p.current[e.Slot] = p.booked[e.Slot]+e.Counts.Records, 0
		if e.Held == 0 {
			e.Computed = p.booked[e.Slot]
		}
		return e
	case orchestrator.WorkerLost:
		p.booked[e.Slot], p.current[e.Slot] = p.booked[e.Slot]+p.current[e.Slot], 0
	}
	return event
}

// watched is a display of a played job.
type watched struct {
	Display
	job played
}

func watch(options Options) watched {
	job := newPlayed(time.Now)
	options.View = job.View
	return watched{New(options), job}
}

func watchBars(out *os.File) watched {
	job := newPlayed(time.Now)
	return watched{newBars(out, job.View), job}
}

func (w watched) Event(event orchestrator.Event) {
	event = w.job.complete(event)
	w.job.Event(event)
	w.Display.Event(event)
}

// script plays events at given seconds.
type script struct {
	*testing.T
	job   *played
	table table
	now   time.Time
}

func (s *script) at(seconds float64, events ...orchestrator.Event) {
	s.now = after(seconds)
	if s.job == nil {
		job := newPlayed(func() time.Time { return s.now })
		s.job = &job
	}
	for _, event := range events {
		s.job.Event(s.job.complete(event))
	}
}

func (s *script) line(want string) {
	s.Helper()
	if got := jobLine(s.job.View()); got != want {
		s.Errorf("line = %q, want %q", got, want)
	}
}

// status compares the status of a device's row.
func (s *script) status(device int, want string) {
	s.Helper()
	if got := groups(s.job.View())[device].row().status; got != want {
		s.Errorf("device %d: status %q, want %q", device, got, want)
	}
}

// rows compares all rows as rendered in a window.
func (s *script) rows(width int, want string) {
	s.Helper()
	got := strings.Join(s.rowsOf(width), "\n")
	if want = strings.TrimPrefix(want, "\n"); got != want {
		s.Errorf("rows are\n%s\nwant\n%s", got, want)
	}
}

func (s *script) rowsOf(width int) (rows []string) {
	s.table.view = s.job.View()
	for _, g := range groups(s.table.view) {
		rows = append(rows, s.table.columns(width).text(g.row()))
	}
	return append(rows, s.table.columns(width).text(totalRow(s.table.view)))
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// after is a time in seconds from the start.
func after(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

// named returns slots of devices with these names: "GPU 0", "GPU 0 #2".
func named(names ...string) (slots []orchestrator.Slot) {
	for i, name := range names {
		label, _, _ := strings.Cut(name, " #")
		kind, index, _ := cutNumber(label)
		d := gpu.Device{Kind: gpu.CPU, Index: index}
		if kind == "GPU" {
			d.Kind = gpu.GPU
		}
		slots = append(slots, orchestrator.Slot{Number: i, Name: name, Devices: []gpu.Device{d}})
	}
	return slots
}
