package view

import (
	"strings"
	"time"

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

// counted are the texts of moments with a count: what is counted, and what happened to it.
var counted = map[string][2]string{
	momentReady:   {"worker", " ready"},
	momentRestart: {"kernel process", " restarted"},
	momentRetry:   {"batch", " computed again"},
}

// describe sets the text of a moment with a count.
func (m *Moment) describe() {
	if texts, ok := counted[m.Kind]; ok {
		m.Text = Plural(m.Count, texts[0]) + texts[1]
	}
}

// timeline keeps the moments of a job, oldest first.
type timeline struct{ moments []Moment }

// add adds a moment; one with a count may join another.
func (t *timeline) add(m Moment) {
	for i := len(t.moments) - 1; m.Count > 0 && i >= 0 && m.Time.Sub(t.moments[i].Time) < momentSpan; i-- {
		known := &t.moments[i]
		if known.Kind == momentRun {
			break // those before belong to another run
		}
		if known.Kind == m.Kind && known.Device == m.Device {
			known.Count += m.Count
			known.describe()
			return
		}
	}
	m.describe()
	t.moments = append(t.moments, m)
	if len(t.moments) > maxMoments {
		t.thin()
	}
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
	one := func(kind, device, text string) []Moment {
		return []Moment{{Time: now, Kind: kind, Device: device, Text: text}}
	}
	switch e := event.(type) {
	case orchestrator.Planned:
		return one(momentRun, "", "started with "+Plural(int64(len(e.Plan.Slots)), "worker"))
	case orchestrator.Resuming:
		return one(momentRun, "", "resumed: earlier runs have done "+Plural(e.Done, "record"))
	case orchestrator.WorkerReady:
		return []Moment{{Time: now, Kind: momentReady, Count: 1}}
	case orchestrator.WorkerLeft:
		return one(momentScaled, e.Device, "worker left the job")
	case orchestrator.ChunkDone:
		return repeats(e, now)
	case orchestrator.Finished:
		if e.Report.Stop != nil {
			return one(momentStopping, "", e.Report.Stop.Message)
		}
		return one(momentFinished, "", "finished")
	}
	m := Words(event)
	if m.Kind == "" {
		return nil
	}
	m.Time, m.Text = now, strings.TrimPrefix(m.Text, ": ")
	return []Moment{m}
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
