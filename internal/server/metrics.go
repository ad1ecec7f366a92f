package server

import (
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/metrics"
	"github.com/gpurun/gpurun/internal/view"
)

// Metrics returns the source of a job's metrics and of its GPUs'.
func (j *Job) Metrics() metrics.Source {
	return metrics.Source{
		Jobs: func() []metrics.Job { return []metrics.Job{jobMetrics(j.current.get())} },
		GPUs: func() []metrics.GPU { return gpuMetrics(j.current.get().View) },
	}
}

func jobMetrics(s jobs.State) metrics.Job {
	return metrics.Job{ID: s.Job.ID, Name: s.Job.Name, Kernel: briefName(s.Job.Kernel), View: s.View}
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
