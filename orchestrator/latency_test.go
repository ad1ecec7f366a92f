package orchestrator_test

import (
	"testing"

	"github.com/gpurun/gpurun/orchestrator"
)

// Every batch's latency reaches the report and the events, however it traveled: with
// Progress or with Done.
func TestLatency(t *testing.T) {
	d := newJobDir(t, numbered(1000))
	var seen orchestrator.Histogram
	config := d.config("echo")
	config.Batching.Size, config.Devices.GPUs = 10, "cpu:2"
	config.Display.OnEvent = func(e orchestrator.Event) {
		var latency *orchestrator.Histogram
		switch e := e.(type) {
		case orchestrator.Progress:
			latency = e.Latency
		case orchestrator.ChunkDone:
			latency = e.Stats.Latency
		}
		if latency != nil {
			seen.Merge(*latency)
		}
	}
	report := mustRun(t, d, config)
	batches := int64(0)
	for _, w := range report.Workers {
		batches += w.Batches
	}
	l := report.Latency
	if l == nil || l.Batches != batches || seen.Count() != batches || batches < 100 {
		t.Fatalf("%d batches, %d in events, report: %+v", batches, seen.Count(), l)
	}
	if l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.Max || l.Max == 0 || l.Mean > l.Max {
		t.Errorf("%+v", *l)
	}
}
