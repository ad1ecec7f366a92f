package metrics

import "github.com/gpurun/gpurun/internal/cluster"

// run sends the metrics of a job that machines share.
func (s sink) run(r cluster.Overview) {
	l := labels{"output", r.Output}
	s.gauge("gpurun_run_records", "Records of a job that machines share.", float64(r.Records), l)
	s.gauge("gpurun_run_records_done", "Records of that job that are computed.", float64(r.Done), l)
	s.gauge("gpurun_run_records_answered", "Records of that job with a logged answer that is not committed yet.", float64(r.Answers), l)
	s.gauge("gpurun_run_records_failed", "Records of that job that failed.", float64(r.Failed), l)
	for _, state := range cluster.States {
		s.gauge("gpurun_run_shards", "Shards of that job by state.", float64(r.Count(state)), l.and("state", string(state)))
	}
	for _, n := range r.Nodes {
		s.gauge("gpurun_run_node_records_per_second", "Records per second of a machine.", n.Rate, l.and("node", n.Host))
		s.gauge("gpurun_run_node_shards", "Shards that a machine is computing.", float64(len(n.Running)), l.and("node", n.Host))
	}
}
