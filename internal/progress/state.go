package progress

import (
	"math"
	"time"

	"github.com/gpurun/gpurun/internal/view"
)

// What bars and lines say about a View.

// phaseTexts describe what workers do, where the name of the phase does not.
var phaseTexts = map[view.Phase]string{
	view.PhaseOpening:    "opening kernel",
	view.PhaseLoading:    "loading the model",
	view.PhaseFirstBatch: "first batch",
	view.PhaseFetching:   "fetching files",
	view.PhaseHeld:       "waiting for the server",
	view.PhaseRetired:    "lost",
	view.PhaseLeft:       "yielded", // to free memory for the other workers on its device
}

// phaseOrder lists what workers do, the most relevant first.
var phaseOrder = []string{
	"computing", "paused", "fetching files", "waiting for the server", "first batch", "loading the model", "importing", "opening kernel", "ready", "waiting", "restarting", "lost", "yielded", "ended",
}

func phaseText(w view.Worker) string {
	text, ok := phaseTexts[w.Phase]
	switch {
	case ok:
		return text
	case w.Phase != view.PhaseWaiting:
		return string(w.Phase)
	case w.PID > 0:
		return "ready"
	case w.Lost > 0:
		return "restarting"
	}
	return "waiting"
}

// phases counts the workers by what they do.
func phases(workers []view.Worker) map[string]int {
	counts := make(map[string]int)
	for _, w := range workers {
		counts[phaseText(w)]++
	}
	return counts
}

// rateOf returns the rate of the job: at the end, the rate in the report.
func rateOf(v view.View) float64 {
	if v.Report != nil {
		return v.Report.Rate
	}
	return v.Rate
}

// tokenText is how many tokens there are per second, "" if there are none.
func tokenText(v view.View) string {
	if v.TokenRate <= 0 {
		return ""
	}
	return shortCount(int64(math.Round(v.TokenRate))) + " tokens/s"
}

// paused reports whether the job is paused: by request, or because every remaining device is.
func paused(v view.View) bool {
	return v.Phase == view.PhasePaused || v.AllIn(view.PhasePaused)
}

// longest caps the ETA, which a tiny rate would make overflow.
const longest = 9999 * time.Hour

// remaining is how long the rest takes, "" if that is unknown.
func remaining(v view.View) string {
	if v.ETA == nil || *v.ETA <= 0 {
		return ""
	}
	return "ETA " + etaText(time.Duration(min(*v.ETA, longest.Seconds())*float64(time.Second)))
}
