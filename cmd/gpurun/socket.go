package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/metrics"
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/internal/server"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// runningJob lets other processes control this job: through Control, and by stopping it
// as a signal would.
type runningJob struct {
	*orchestrator.Control
	*stops
}

// openServers makes the job visible until end is called: through its socket and, with
// --listen and --metrics-file, to browsers and Prometheus. Without a socket the job runs
// anyway: id is "" and the display shows a notice.
func openServers(o options, config *orchestrator.Config, v *view.Collector, display progress.Display, stops *stops) (id string, m *metrics.Metrics, end func(), err error) {
	output := config.Output.Path
	if output != "-" {
		output = files.Absolute(output)
	}
	entry := jobs.Entry{Info: jobs.Info{Name: o.Lease.Name, Kernel: config.Kernel.Name, Input: config.Input.Path, Output: output}}
	registration, err := jobs.Register(entry)
	if err != nil {
		display.Event(orchestrator.Notice{Text: "gpurun status cannot show this job: " + err.Error()})
		entry = jobs.NewEntry(entry)
	} else {
		entry = registration.Entry
		id = entry.ID
	}
	config.Control = &orchestrator.Control{}
	job := server.NewJob(entry, runningJob{config.Control, stops}, v)
	show := config.Display.OnEvent
	config.Display.OnEvent = func(e orchestrator.Event) {
		show(e)
		job.Event(e)
	}
	ends := []func(){job.Close}
	end = func() {
		for _, end := range ends {
			end()
		}
	}
	if registration != nil {
		ends = append(ends, registration.Serve(server.NewSocket(job), v.View))
	}
	m = metrics.New(job.Metrics())
	if o.Metrics != "" {
		ends = append(ends, writeMetrics(m, o.Metrics))
	}
	if o.Listen.Address != "" {
		stop, err := openPage(o, job, m, display)
		if err != nil {
			end()
			return "", nil, nil, err
		}
		ends = append(ends, stop)
	}
	return id, m, end, nil
}

// openPage serves the job at --listen and shows the address.
func openPage(o options, job *server.Job, m *metrics.Metrics, display progress.Display) (end func(), err error) {
	l, err := o.Listen.listen()
	if err != nil {
		return nil, err
	}
	stop := l.serve(server.New(l.access, job, m))
	if line := "watch this job at " + l.url(); o.Events == "-" {
		display.Event(orchestrator.Notice{Text: line})
	} else { // not as an event: a file of events may be readable by others
		fmt.Fprintln(display, line)
	}
	return stop, nil
}

// metricsInterval is how often --metrics-file is written: node_exporter reads it when it is
// scraped, usually every 15 s or more.
const metricsInterval = 10 * time.Second

// writeMetrics keeps the file of --metrics-file up to date until end is called, which writes it once
// more. An error must not stop the job; it is reported at the end.
func writeMetrics(m *metrics.Metrics, file string) (end func()) {
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			_ = m.WriteFile(file)
			select {
			case <-time.After(metricsInterval):
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		writing.Wait()
		if err := m.WriteFile(file); err != nil {
			fmt.Fprintf(os.Stderr, "gpurun: --metrics-file: %v\n", err)
		}
	}
}
