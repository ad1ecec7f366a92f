package server

import "github.com/gpurun/gpurun/internal/metrics"

// Metrics returns the source of a job's metrics and of its GPUs'.
func (j *Job) Metrics() metrics.Source {
	return metrics.Source{
		Jobs: func() []metrics.Job { return []metrics.Job{j.current.get().metrics()} },
		GPUs: func() []metrics.GPU { return j.current.get().gpus() },
	}
}

func (s JobState) metrics() metrics.Job {
	return metrics.Job{ID: s.Job.ID, Name: s.Job.Name, Kernel: briefName(s.Job.Kernel), View: s.View}
}

// gpus are the job's monitored GPUs.
func (s JobState) gpus() (list []metrics.GPU) {
	for _, d := range s.Devices {
		if d.GPU && !d.Sampled.IsZero() {
			list = append(list, metrics.GPU{
				ID: d.ID, UUID: d.UUID, Model: d.Name, Utilization: d.Utilization,
				Memory: d.Memory, Temperature: d.Temperature, Power: d.Power, PowerLimit: d.PowerLimit, Throttle: d.Throttle,
			})
		}
	}
	return list
}
