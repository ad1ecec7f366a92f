package main

import (
	"path/filepath"

	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/internal/server"
	"github.com/gpurun/gpurun/orchestrator"
)

// runningJob is what others may do to this process's job: what Control offers, and
// to stop it as a signal would.
type runningJob struct {
	*orchestrator.Control
	stops *stops
}

// Cancel is part of server.Job.
func (j runningJob) Cancel() { j.stops.cancel() }

// openSocket registers the job and answers for it until end is called. A job that
// cannot be registered runs all the same: id is "" then, and the display says why.
func (f *runFlags) openSocket(config *orchestrator.Config, display progress.Display, stops *stops) (id string, end func()) {
	output := config.Output
	if output != "-" {
		if full, err := filepath.Abs(output); err == nil {
			output = full
		}
	}
	registration, err := server.Register(server.Entry{
		Name: f.name, Kernel: config.Kernel, Input: config.Input, Output: output, Command: commandLine(),
	})
	if err != nil {
		display.Event(orchestrator.Notice{Text: "gpurun status will not show this job: " + err.Error()})
		return "", func() {}
	}
	config.Control = &orchestrator.Control{}
	events := &server.Events{}
	tell, write := config.OnEvent, progress.EventWriter(events)
	config.OnEvent = func(e orchestrator.Event) {
		tell(e)
		write(e)
	}
	return registration.Entry.ID, registration.Serve(runningJob{config.Control, stops}, events)
}
