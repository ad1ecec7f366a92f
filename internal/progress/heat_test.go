package progress

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/orchestrator"
)

// heated is how a GPU is doing; 0 °C is a card that does not tell.
func heated(device string, celsius int, pace float64) orchestrator.DeviceSample {
	s := orchestrator.DeviceSample{Device: device, Pace: pace}
	if celsius > 0 {
		s.Temperature = gpu.Some(celsius)
	}
	return s
}

func gpuSlot(number int, name string, indices ...int) orchestrator.Slot {
	slot := orchestrator.Slot{Number: number, Name: name}
	for _, i := range indices {
		slot.Devices = append(slot.Devices, gpu.Device{Kind: gpu.GPU, Index: i, Token: "x"})
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
	status := func(device int, want string) {
		t.Helper()
		if got := s.state.deviceRow(s.state.devices[device], s.now).status; got != want {
			t.Errorf("%s: %q, want %q", s.state.devices[device].name, got, want)
		}
	}
	status(0, "computing")
	s.at(3, heated("GPU 0", 62, 1), heated("GPU 1", 84, 0.5), heated("GPU 2", 91, 0), heated("GPU 3", 93, 1))
	status(0, "computing, 62°C")
	status(1, "slowed, 84°C")
	status(2, "paused, 91°C") // the slowest of its GPUs says how fast it is
	if got := s.state.line(s.now); !strings.HasSuffix(got, "4 computing, GPU 1 84°C slowed, GPU 2 paused, 91°C") {
		t.Errorf("line %q", got)
	}
	s.at(3.5, orchestrator.WorkerStarted{Slot: 3})
	status(2, "opening kernel, 91°C")
	s.at(3.6, orchestrator.ChunkStarted{Slot: 3, Records: 1000})
	s.at(4, orchestrator.WorkerLeft{Slot: 2, Device: "GPU 1 #2"})
	status(1, "slowed 1/2, 84°C")
	s.at(6, heated("GPU 0", 0, 1), heated("GPU 1", 70, 1), heated("GPU 2", 60, 1), heated("GPU 3", 61, 1), heated("GPU 9", 99, 0))
	status(0, "computing")
	status(1, "computing 1/2, 70°C")
	status(2, "computing, 61°C")
	if got := s.state.line(s.now); !strings.HasSuffix(got, "3 computing, 1 left, up to 70°C") {
		t.Errorf("line %q", got)
	}
}

func TestHeatNotices(t *testing.T) {
	event := func(kind gpu.EventKind, pace float64) orchestrator.DeviceEvent {
		return orchestrator.DeviceEvent{Kind: kind, Device: "GPU 1", Pace: pace, Temperature: gpu.Some(84), Memory: gpu.Some(10.0)}
	}
	byMemory := event(gpu.Throttle, 0.5)
	byMemory.Memory = gpu.Some(88.0)
	hung := event(gpu.StateChange, 1)
	hung.Problem = "the NVIDIA driver does not answer"
	hungResume := hung
	hungResume.Kind = gpu.Resume
	for want, e := range map[string]orchestrator.DeviceEvent{
		"GPU 1 is slowed to 50 % at 84°C":                                         event(gpu.Throttle, 0.5),
		"GPU 1 is slowed to 50 % at 84°C, with 88 % of its memory used by others": byMemory,
		"GPU 1 pauses at 84°C":                                                    event(gpu.BecameCritical, 0),
		"GPU 1 is too hot at 84°C: it gives its work back":                        event(gpu.Overheat, 0),
		"GPU 1 goes on at 84°C":                                                   event(gpu.Resume, 1),
		"GPU 1 is not monitored: the NVIDIA driver does not answer":               hung,
	} {
		if got := notice(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, e := range []orchestrator.DeviceEvent{event(gpu.StateChange, 1), event(gpu.Throttle, 0), event(gpu.BecameCritical, 0.5), hungResume} {
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
		},
		Recommendations: []string{"31 % of memory used: try --batch-size 512"},
	})
	for _, want := range []string{
		"  GPU 0: up to 91°C, slowed for 1m23s, 31 % of memory, 88 % load, 2.0 Wh\n",
		"  GPU 1: the NVIDIA driver does not answer\n",
		"  hint: 31 % of memory used: try --batch-size 512\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "GPU 2") {
		t.Errorf("a line about nothing:\n%s", &out)
	}
}
