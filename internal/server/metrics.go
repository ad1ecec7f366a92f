package server

import (
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/metrics"
	"github.com/gpurun/gpurun/internal/view"
)

// Metrics returns the source of a job's metrics and of its GPUs'.
func (j *Job) Metrics() metrics.Source {
	return metrics.Source{
		Jobs: func() []jobs.State { return forMetrics(j.current.get()) },
		GPUs: func() []metrics.GPU { return gpuMetrics(j.current.get().View) },
	}
}

// forMetrics returns the jobs that have a state, with brief names.
func forMetrics(states ...jobs.State) (list []jobs.State) {
	for _, s := range states {
		if s.Job.Kernel = briefName(s.Job.Kernel); s.Trouble == "" {
			list = append(list, s)
		}
	}
	return list
}

// gpuMetrics are a job's monitored GPUs.
func gpuMetrics(v view.View) (list []metrics.GPU) {
	for _, d := range v.Devices {
		if d.GPU && !d.Sampled.IsZero() {
			list = append(list, metrics.GPU{ID: d.ID, UUID: d.UUID, Model: d.Name, Sample: d.Sample})
		}
	}
	return list
}
