package metrics

// Run is a job that machines share.
type Run struct {
	Output                string
	Records, Done, Failed int64
	// Answers of further records are logged.
	Answers int64
	// Shards counts them by state.
	Shards map[string]int
	Nodes  []Node
}

// Node is a machine that computes shards of a run.
type Node struct {
	Name    string
	Rate    float64
	Running int
}

// run sends the metrics of one run.
func (s sink) run(r Run) {
	s.gauge("gpurun_run_records", "Records of a job that machines share.", float64(r.Records), labels{"output", r.Output})
	s.gauge("gpurun_run_records_done", "Records of that job that are computed.", float64(r.Done), labels{"output", r.Output})
	s.gauge("gpurun_run_records_answered", "Records of that job with a logged answer that is not committed yet.", float64(r.Answers), labels{"output", r.Output})
	s.gauge("gpurun_run_records_failed", "Records of that job that failed.", float64(r.Failed), labels{"output", r.Output})
	for state, n := range r.Shards {
		s.gauge("gpurun_run_shards", "Shards of that job by state.", float64(n), labels{"output", r.Output, "state", state})
	}
	for _, n := range r.Nodes {
		s.gauge("gpurun_run_node_records_per_second", "Records per second of a machine.", n.Rate, labels{"output", r.Output, "node", n.Name})
		s.gauge("gpurun_run_node_shards", "Shards that a machine is computing.", float64(n.Running), labels{"output", r.Output, "node", n.Name})
	}
}
