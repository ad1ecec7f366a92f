package progress

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// sampled returns the sample of a GPU; 0 °C means that it does not report a temperature.
func sampled(device string, celsius int, pace float64) orchestrator.DeviceSample {
	s := orchestrator.DeviceSample{Device: device, Pace: pace}
	if celsius > 0 {
		s.Temperature = gpu.Some(celsius)
	}
	return s
}

func gpuSlot(number int, name string, indices ...int) orchestrator.Slot {
	slot := orchestrator.Slot{Number: number, Name: name}
	for _, i := range indices {
		slot.Devices = append(slot.Devices, gpu.Device{Kind: gpu.GPU, Index: i, Token: "x", UUID: fmt.Sprint("GPU-", i)})
	}
	return slot
}

func TestHeatInBarsAndLines(t *testing.T) {
	s := &script{T: t}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 3000, Slots: []orchestrator.Slot{
		gpuSlot(0, "GPU 0", 0), gpuSlot(1, "GPU 1 #1", 1), gpuSlot(2, "GPU 1 #2", 1), gpuSlot(3, "GPU 2+3", 2, 3),
	}}})
	for slot := range 4 {
		s.at(0, orchestrator.ChunkStarted{Slot: slot, Records: 1000})
	}
	s.status(0, "computing")
	s.at(3, sampled("GPU 0", 62, 1), sampled("GPU 1", 84, 0.5), sampled("GPU 2", 91, 0), sampled("GPU 3", 93, 1))
	s.status(0, "computing, 62°C")
	s.status(1, "slowed, 84°C")
	s.status(2, "paused, 91°C") // the slowest of its GPUs counts
	if got := jobLine(s.job.View()); !strings.HasSuffix(got, "3 computing, 1 paused, GPU 1 slowed, 84°C, GPU 2 paused, 91°C") {
		t.Errorf("line %q", got)
	}
	s.at(3.5, orchestrator.WorkerStarted{Slot: 3})
	s.status(2, "opening kernel, 91°C")
	s.at(3.6, orchestrator.ChunkStarted{Slot: 3, Records: 1000})
	s.at(4, orchestrator.WorkerLeft{Slot: 2, Device: "GPU 1 #2"})
	s.status(1, "slowed 1/2, 84°C")
	s.at(6, sampled("GPU 0", 0, 1), sampled("GPU 1", 70, 1), sampled("GPU 2", 60, 1), sampled("GPU 3", 61, 1), sampled("GPU 9", 99, 0))
	s.status(0, "computing")
	s.status(1, "computing 1/2, 70°C")
	s.status(2, "computing, 61°C")
	if got := jobLine(s.job.View()); !strings.HasSuffix(got, "3 computing, 1 yielded, up to 70°C") {
		t.Errorf("line %q", got)
	}
}

// A GPU whose monitoring fails is shown as not monitored, not as cool.
func TestUnseenInBarsAndLines(t *testing.T) {
	s := &script{T: t}
	var slots []orchestrator.Slot
	for i := range 3 {
		slots = append(slots, gpuSlot(i, fmt.Sprintf("GPU %d", i), i))
	}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 3000, Slots: slots}})
	for i, pace := range []float64{0, 0.5, 1} {
		s.at(0, orchestrator.ChunkStarted{Slot: i, Records: 1000},
			orchestrator.DeviceSample{Device: fmt.Sprintf("GPU %d", i), Pace: pace, Problem: "the NVIDIA driver does not answer"})
	}
	for i, want := range []string{"paused, not monitored", "slowed, not monitored", "computing, not monitored"} {
		s.status(i, want)
	}
	if got := jobLine(s.job.View()); !strings.HasSuffix(got, "GPU 0 paused, not monitored, GPU 1 slowed, not monitored, GPU 2 not monitored") {
		t.Errorf("line %q", got)
	}
}

// A job that is paused, by heat or on request, has no ETA.
func TestNoETAWhilePaused(t *testing.T) {
	s := &script{T: t}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 3000, Slots: []orchestrator.Slot{gpuSlot(0, "GPU 0", 0), gpuSlot(1, "GPU 1", 1)}}})
	s.at(0, orchestrator.ChunkStarted{Slot: 0, Records: 1500}, orchestrator.ChunkStarted{Slot: 1, Records: 1500})
	s.at(2, orchestrator.Progress{Slot: 0, Chunk: chunk.Counts{Records: 100}, Job: chunk.Counts{Records: 100}, Total: 3000, Records: 1500})
	s.at(3, orchestrator.Progress{Slot: 0, Chunk: chunk.Counts{Records: 200}, Job: chunk.Counts{Records: 200}, Total: 3000, Records: 1500})
	for _, step := range []struct {
		event orchestrator.Event
		want  string // "ETA" or "paused"
	}{
		{sampled("GPU 0", 60, 1), "ETA"},
		{sampled("GPU 0", 91, 0), "ETA"},
		{sampled("GPU 1", 91, 0), "paused"},
		{sampled("GPU 1", 80, 0.5), "ETA"},
		{orchestrator.WorkerLost{Slot: 1, Retired: true, Fault: fault.New(fault.Device, "lost")}, "paused"},
		{sampled("GPU 0", 80, 0.5), "ETA"},
		{orchestrator.Paused{}, "paused"},
		{orchestrator.Resumed{}, "ETA"},
	} {
		s.at(3, step.event)
		status, line := totalRow(s.job.View()).status, jobLine(s.job.View())
		if !strings.HasPrefix(status, step.want) || !strings.Contains(line, "/s, "+step.want) {
			t.Errorf("after %s: %q and %q, want %s", step.event.EventName(), status, line, step.want)
		}
	}
}

func TestHeatNotices(t *testing.T) {
	event := func(kind gpu.EventKind, pace float64) orchestrator.DeviceEvent {
		return orchestrator.DeviceEvent{Kind: kind, Device: "GPU 1", Pace: pace, Temperature: gpu.Some(84), Memory: gpu.Some(10.0)}
	}
	byMemory := event(gpu.Throttle, 0.5)
	byMemory.Memory = gpu.Some(88.0)
	hung := func(kind gpu.EventKind, pace float64) orchestrator.DeviceEvent {
		return orchestrator.DeviceEvent{Kind: kind, Device: "GPU 1", From: gpu.Critical, Pace: pace, Problem: "the NVIDIA driver does not answer"}
	}
	lowered := func(reasons gpu.Reasons, to gpu.State) orchestrator.DeviceEvent {
		e := event(gpu.Clocks, 1)
		e.Clocks, e.To = reasons, to
		return e
	}
	for want, e := range map[string]orchestrator.DeviceEvent{
		"GPU 1 lowers its own clocks at 84°C: hw_slowdown, hw_thermal_slowdown": lowered(1<<3|1<<6, gpu.Throttled),
		"GPU 1 lowers its own clocks at 84°C: hw_power_brake_slowdown":          lowered(1<<7, gpu.Throttled),
		"GPU 1 was reset at 84°C":                                                                           event(gpu.Reset, 1),
		"GPU 1 slowed to 50% at 84°C":                                                                       event(gpu.Throttle, 0.5),
		"GPU 1 slowed to 50% at 84°C, with 88% of its memory used by others":                                byMemory,
		"GPU 1 paused at 84°C":                                                                              event(gpu.BecameCritical, 0),
		"GPU 1 is too hot at 84°C: returning its work to the queue":                                         event(gpu.Overheat, 0),
		"GPU 1 resumed at 84°C":                                                                             event(gpu.Resume, 1),
		"GPU 1 is not monitored: the NVIDIA driver does not answer":                                         hung(gpu.Unseen, 1),
		"GPU 1 is not monitored: the NVIDIA driver does not answer; it stays paused":                        hung(gpu.Unseen, 0),
		"GPU 1 is not monitored: the NVIDIA driver does not answer; it stays at 50% of its speed":           hung(gpu.Unseen, 0.5),
		"GPU 1 is still not monitored: the NVIDIA driver does not answer; it continues at 50% of its speed": hung(gpu.StateChange, 0.5),
		"GPU 1 is monitored again at 84°C":                                                                  event(gpu.Seen, 0.5),
	} {
		if got := notice(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, e := range []orchestrator.DeviceEvent{event(gpu.StateChange, 1), event(gpu.Throttle, 0), event(gpu.BecameCritical, 0.5), hung(gpu.Resume, 1), hung(gpu.StateChange, 0), lowered(1<<2, gpu.Normal), lowered(0, gpu.Optimal)} {
		if got := notice(e); got != "" {
			t.Errorf("%s is worth no line: %q", e.Kind, got)
		}
	}
}

func TestReportOfDevices(t *testing.T) {
	var out strings.Builder
	WriteReport(&out, orchestrator.Report{
		Devices: []orchestrator.DeviceReport{
			{Device: "GPU 0", Totals: gpu.Totals{
				PeakTemperature: gpu.Some(91), Throttled: 83e9, PeakMemory: gpu.Some(31.2), Utilization: gpu.Some(88.0), Energy: gpu.Some(gpu.Joule(7200)),
			}},
			{Device: "GPU 1", Problem: "the NVIDIA driver does not answer"},
			{Device: "GPU 2"},
			{Device: "GPU 3", Totals: gpu.Totals{Throttled: 83e9, ForMemory: 80e9, HeatSlowed: 5e9, PowerCapped: 60e9}},
		},
		Recommendations: []orchestrator.Recommendation{{Text: "31% of memory used: try batches of 512", Setting: "batch-size 512"}},
	}, testHints{})
	for _, want := range []string{
		"  GPU 0: up to 91°C, slowed for 1m23s, 31% of memory, 88% load, 2.0 Wh\n",
		"  GPU 3: slowed for 1m23s, of which 1m20s because of others' memory, lowered its clocks because of heat for 5.0s, at its power limit for 1m0s\n",
		"  GPU 1: the NVIDIA driver does not answer\n",
		"  hint: 31% of memory used: try batches of 512 [batch-size 512]\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "GPU 2") {
		t.Errorf("a line about nothing:\n%s", &out)
	}
}
