package main

import (
	"path/filepath"

	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/orchestrator"
)

// runningJob lets other processes control this job: through Control, and by stopping it
// as a signal would.
type runningJob struct {
	*orchestrator.Control
	stops *stops
}

// Cancel implements jobs.Job.
func (j runningJob) Cancel() { j.stops.cancel() }

// openSocket registers the job and serves its socket until end is called. If registration
// fails, the job runs anyway: id is "" and the display shows a notice.
func (f *runFlags) openSocket(config *orchestrator.Config, display progress.Display, stops *stops) (id string, end func()) {
	output := config.Output
	if output != "-" {
		if full, err := filepath.Abs(output); err == nil {
			output = full
		}
	}
	registration, err := jobs.Register(jobs.Entry{
		Name: f.name, Kernel: config.Kernel, Input: config.Input, Output: output, Command: commandLine(),
	})
	if err != nil {
		display.Event(orchestrator.Notice{Text: "gpurun status cannot show this job: " + err.Error()})
		return "", func() {}
	}
	config.Control = &orchestrator.Control{}
	events := &jobs.Events{}
	show, write := config.OnEvent, progress.EventWriter(events)
	config.OnEvent = func(e orchestrator.Event) {
		show(e)
		write(e)
	}
	return registration.Entry.ID, registration.Serve(runningJob{config.Control, stops}, events)
}
