package orchestrator_test

import (
	"fmt"
	"testing"

	"github.com/gpurun/gpurun/orchestrator"
)

// The first worker opens alone; the others start once it is ready.
func TestStagger(t *testing.T) {
	dir := newJobDir(t, numbered(400))
	config := dir.config("test-slow")
	config.Kernel.Config, config.Devices.GPUs, config.Batching.Size = []byte(`{"Milliseconds":20}`), "cpu:3", 1
	config.Devices.Stagger = orchestrator.StaggerOn
	var order []string
	config.Display.OnEvent = func(e orchestrator.Event) {
		switch e.(type) {
		case orchestrator.WorkerStarted:
			order = append(order, "started")
		case orchestrator.WorkerReady:
			order = append(order, "ready")
		}
	}
	if _, err := run(t, config); err != nil {
		t.Fatal(err)
	}
	if len(order) < 3 || fmt.Sprint(order[:3]) != "[started ready started]" {
		t.Errorf("%q", order)
	}
}

// A kernel that cannot open is tried by one worker only.
func TestStaggerStops(t *testing.T) {
	dir := newJobDir(t, numbered(400))
	config := dir.config("test-open")
	config.Kernel.Config, config.Devices.GPUs, config.Batching.Size = []byte(`"error"`), "cpu:4", 1
	config.Devices.Stagger = orchestrator.StaggerOn
	started := 0
	config.Display.OnEvent = func(e orchestrator.Event) {
		if _, is := e.(orchestrator.WorkerStarted); is {
			started++
		}
	}
	if _, err := run(t, config); err == nil || started != 1 {
		t.Errorf("%d workers were started: %v", started, err)
	}
}

// A device that is lost while opening passes the turn to the next.
func TestStaggerPassesTheTurn(t *testing.T) {
	dir := newJobDir(t, numbered(40))
	config := dir.config("test-open")
	config.Kernel.Config, config.Devices.GPUs, config.Batching.Size = []byte(`"first-only"`), "cpu:3", 1
	config.Devices.Stagger = orchestrator.StaggerOn
	report, err := run(t, config)
	if err != nil || report.Succeeded != 40 {
		t.Errorf("%+v, %v", report, err)
	}
}
