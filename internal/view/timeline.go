package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/orchestrator"
)

// Moment is something that happened besides progress: to workers, to devices, to the job.
type Moment struct {
	Time time.Time `json:"time"`
	// Kind is one of the kinds below.
	Kind string `json:"kind"`
	// Device is the label of a worker or a device; empty for the whole job.
	Device string `json:"device,omitempty"`
	Text   string `json:"text"`
	// Count is how many workers or batches the text is about; 0 if it is about none.
	Count int64 `json:"count,omitempty"`
}

// The kinds of moments.
const (
	momentRun      = "run"      // the job started or was resumed
	momentReady    = "ready"    // a worker is ready
	momentLost     = "lost"     // a worker was lost
	momentScaled   = "scaled"   // the number of workers changed
	momentRestart  = "restart"  // kernel processes were started again
	momentRetry    = "retry"    // batches were computed again
	momentFailed   = "failed"   // records were given up
	momentSlowed   = "slowed"   // a device must slow down or pause, or cannot be read
	momentRecover  = "recover"  // a device may compute at full speed again
	momentPaused   = "paused"   // the job was paused
	momentResumed  = "resumed"  // a paused job continues
	momentStopping = "stopping" // the job was asked to stop, or has stopped early
	momentFinished = "finished" // all records are done
)

const (
	// maxMoments is how many moments are kept; of more, the oldest are dropped, except
	// those that begin a run.
	maxMoments = 500
	// momentSpan is how long moments that only differ in their count are one moment.
	momentSpan = time.Minute
)

// counted are the texts of moments with a count: for one, and for more.
var counted = map[string][2]string{
	momentReady:   {"%d worker ready", "%d workers ready"},
	momentRestart: {"%d kernel process restarted", "%d kernel processes restarted"},
	momentRetry:   {"%d batch computed again", "%d batches computed again"},
}

// describe sets the text of a moment with a count.
func (m *Moment) describe() {
	if texts, ok := counted[m.Kind]; ok {
		m.Text = fmt.Sprintf(texts[min(m.Count, 2)-1], m.Count)
	}
}

// timeline keeps the moments of a job, oldest first.
type timeline struct{ moments []Moment }

// add adds a moment and returns it as it is now kept: one with a count may join another.
func (t *timeline) add(m Moment) Moment {
	for i := len(t.moments) - 1; m.Count > 0 && i >= 0 && m.Time.Sub(t.moments[i].Time) < momentSpan; i-- {
		known := &t.moments[i]
		if known.Kind == momentRun {
			break // those before belong to another run
		}
		if known.Kind == m.Kind && known.Device == m.Device {
			known.Count += m.Count
			known.describe()
			return *known
		}
	}
	m.describe()
	t.moments = append(t.moments, m)
	if len(t.moments) > maxMoments {
		t.thin()
	}
	return m
}

// thin drops the older half, except the beginnings of the last runs.
func (t *timeline) thin() {
	half := len(t.moments) / 2
	var kept []Moment
	for _, m := range t.moments[:half] {
		if m.Kind == momentRun {
			kept = append(kept, m)
		}
	}
	kept = kept[max(0, len(kept)-maxMoments/4):]
	t.moments = append(kept, t.moments[half:]...)
}

func (t *timeline) show() []Moment { return append([]Moment{}, t.moments...) }

// moments returns what an event adds to the timeline.
func moments(event orchestrator.Event, now time.Time) []Moment {
	one := func(kind, device, format string, args ...any) []Moment {
		return []Moment{{Time: now, Kind: kind, Device: device, Text: fmt.Sprintf(format, args...)}}
	}
	switch e := event.(type) {
	case orchestrator.Planned:
		if n := len(e.Plan.Slots); n != 1 {
			return one(momentRun, "", "started with %d workers", n)
		}
		return one(momentRun, "", "started with 1 worker")
	case orchestrator.Resuming:
		return one(momentRun, "", "resumed: earlier runs have done %d records", e.Done)
	case orchestrator.WorkerReady:
		return []Moment{{Time: now, Kind: momentReady, Count: 1}}
	case orchestrator.WorkerLost:
		text := "worker lost"
		if e.Fault != nil {
			text += ": " + e.Fault.Message
		}
		if e.Retired {
			text += "; not replaced for now"
		}
		return one(momentLost, e.Device, "%s", text)
	case orchestrator.WorkerLeft:
		return one(momentScaled, e.Device, "worker left the job")
	case orchestrator.DeviceRetired:
		return one(momentLost, e.Device, "retired: %d records failed on it, but not on %s: %s", e.Records, e.On, e.Message)
	case orchestrator.WorkersScaled:
		if e.Workers > 1 || e.From > 1 { // a device that keeps its only worker is no news
			return one(momentScaled, e.Device, "%s", strings.TrimPrefix(e.String(), e.Device+": "))
		}
	case orchestrator.ChunkDone:
		return repeats(e, now)
	case orchestrator.ChunkGivenUp:
		return one(momentFailed, "", "records %d to %d given up, %d of them failed", e.First+1, e.First+e.Records, e.Failed)
	case orchestrator.DeviceEvent:
		return deviceMoment(e, now)
	case orchestrator.Paused:
		return one(momentPaused, "", "paused")
	case orchestrator.Resumed:
		return one(momentResumed, "", "continues after a pause")
	case orchestrator.Stopping:
		return one(momentStopping, "", "stopping")
	case orchestrator.Finished:
		if e.Report.Stop != nil {
			return one(momentStopping, "", "%s", e.Report.Stop.Message)
		}
		return one(momentFinished, "", "finished")
	}
	return nil
}

// repeats are the restarts and retries that a segment has cost.
func repeats(e orchestrator.ChunkDone, now time.Time) (list []Moment) {
	if n := e.Stats.Restarts; n > 0 {
		list = append(list, Moment{Time: now, Kind: momentRestart, Device: e.Device, Count: n})
	}
	if n := e.Stats.Retries; n > 0 {
		list = append(list, Moment{Time: now, Kind: momentRetry, Count: n}) // of all devices: there may be many
	}
	return list
}

// deviceKinds are the events of devices that matter to a reader.
var deviceKinds = map[gpu.EventKind]string{
	gpu.Throttle: momentSlowed, gpu.BecameCritical: momentSlowed, gpu.Overheat: momentSlowed,
	gpu.Unseen: momentSlowed, gpu.MemoryErrors: momentSlowed, gpu.Clocks: momentSlowed, gpu.Reset: momentRecover, gpu.Resume: momentRecover, gpu.Seen: momentRecover,
}

func deviceMoment(e orchestrator.DeviceEvent, now time.Time) []Moment {
	kind, matters := deviceKinds[e.Kind]
	if !matters {
		return nil
	}
	var text string
	switch {
	case e.Kind == gpu.Throttle && e.Pace == 0, e.Kind == gpu.BecameCritical && e.Pace > 0:
		return nil // another event of the same sample tells it
	case e.Kind == gpu.Overheat:
		text = "too hot: returned its work"
	case e.Kind == gpu.Reset:
		text = "was reset"
	case e.Kind == gpu.Clocks && e.Clocks == 0:
		kind, text = momentRecover, "its clocks are up again"
	case e.Kind == gpu.Clocks:
		text = "lowers its clocks: " + e.Clocks.String()
	case e.Kind == gpu.MemoryErrors:
		text = "uncorrected memory errors"
	case e.Problem != "":
		text = e.Problem
	case e.Pace == 0:
		text = "paused"
	case e.Pace < 1:
		text = fmt.Sprintf("slowed to %.0f %%", 100*e.Pace)
	default:
		text = "full speed"
	}
	if c, ok := e.Temperature.Get(); ok && e.Kind != gpu.MemoryErrors {
		text = fmt.Sprintf("%s at %d °C", text, c)
	}
	return []Moment{{Time: now, Kind: kind, Device: e.Device, Text: text}}
}

// sameMoment reports whether b is a later version of a.
func sameMoment(a, b Moment) bool {
	return a.Time.Equal(b.Time) && a.Kind == b.Kind && a.Device == b.Device
}

// put adds a moment that was read from a file, or replaces its earlier version.
func (t *timeline) put(m Moment) {
	if i := slices.IndexFunc(t.moments, func(known Moment) bool { return sameMoment(known, m) }); i >= 0 {
		t.moments[i] = m
		return
	}
	t.moments = append(t.moments, m)
}
