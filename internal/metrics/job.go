package metrics

import (
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

type histogram = orchestrator.Histogram

// job sends the metrics of one job.
func (s sink) job(job jobs.State) {
	v, l := job.View, labels{"job_id", job.Job.ID}
	s.gauge("gpurun_job_info", "The job; always 1.", 1, l.and("name", job.Job.Name, "kernel", job.Job.Kernel))
	s.gauge("gpurun_job_phase", "The phase of the job; always 1.", 1, l.and("phase", string(v.Phase)))
	if v.Total >= 0 {
		s.gauge("gpurun_records", "Records of the input; absent while unknown.", float64(v.Total), l)
		s.gauge("gpurun_queue_records", "Records that no worker has started.", float64(queued(v)), l)
	}
	const records = "Records of finished chunks by verdict, including those of earlier runs."
	for verdict, n := range map[string]int64{"succeeded": v.Finished.Succeeded, "failed": v.Finished.Failed, "dropped": v.Finished.Dropped} {
		s.counter("gpurun_records_total", records, float64(n), l.and("verdict", verdict))
	}
	s.gauge("gpurun_records_done", "Finished records, also of chunks in progress. It falls when a worker is lost.", float64(v.Done.Records), l)
	s.gauge("gpurun_records_answered", "Records with a logged answer that is not committed yet. They are not computed again.", float64(v.Answers), l)
	for kind, n := range v.FailuresByKind {
		s.counter("gpurun_failures_total", "Failed records by kind, including those of earlier runs.", float64(n), l.and("kind", kind))
	}
	s.gauge("gpurun_records_per_second", "Records per second in the last half minute.", v.Rate, l)
	s.histogram("gpurun_batch_duration_seconds", "How long batches took on their devices.", v.Batches, l)
	s.histogram("gpurun_segment_duration_seconds", "How long the kernel computed for a committed segment.", v.Segments, l)
	for name, n := range v.Figures {
		s.counter("gpurun_"+metricName(name)+"_total", "A count of the job's workers: "+name+".", n, l)
	}
	if v.Figures["total_tokens"] > 0 {
		s.gauge("gpurun_tokens_per_second", "Tokens generated per second in the last half minute; used, if none are generated.", v.TokenRate, l)
	}
	s.workers(v, l)
	s.devices(v, l)
}

// queued counts the records that are neither finished nor with a worker.
func queued(v view.View) int64 {
	n := v.Total - v.Reached()
	for _, w := range v.Workers {
		n -= w.Records - min(w.Done, w.Records)
	}
	return max(0, n)
}

func (s sink) workers(v view.View, l labels) {
	var restarts, retries, lost int64
	phases := make(map[view.Phase]int)
	for _, w := range v.Workers {
		restarts, retries, lost = restarts+w.Restarts, retries+w.Retries, lost+w.Lost
		phases[w.Phase]++
		s.gauge("gpurun_kernel_load_seconds", "How long a worker's kernel last took to open.", w.Load.Seconds(),
			l.and("slot", strconv.Itoa(w.Slot), "device", w.Device))
	}
	s.counter("gpurun_kernel_restarts_total", "Kernel processes started after one died.", float64(restarts), l)
	s.counter("gpurun_batch_retries_total", "Batches computed again, whole or in parts.", float64(retries), l)
	s.counter("gpurun_workers_lost_total", "Workers that were lost.", float64(lost), l)
	for phase, n := range phases {
		s.gauge("gpurun_workers", "Workers by phase.", float64(n), l.and("phase", string(phase)))
	}
}

// devices sends what the job does on each device. The GPUs themselves come from GPUs.
func (s sink) devices(v view.View, l labels) {
	for _, d := range v.Devices {
		l := l.and(deviceLabels(d.GPU, d.ID, d.UUID, d.Name)...)
		s.gauge("gpurun_pace", "The share of time in which a device may compute.", d.Pace, l)
		s.counter("gpu_throughput_ops_total", "Records that a device has computed, also those that were lost with a worker.", float64(d.Records), l)
		s.histogram("gpu_operation_latency_seconds", "How long a device took for a batch.", d.Batches, l)
	}
}

// metricName makes a name fit for Prometheus.
func metricName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}
