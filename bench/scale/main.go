// Command scale simulates a run on a cluster, event by event, and prints the tables of
// docs/scale.md: how the number of shards, the interval of checkpoints, the number of
// chunks and failures of nodes affect how much of the GPUs' time becomes output.
//
//	go run ./scale
package main

import (
	"fmt"
	"io"
	"os"
)

// base is 64 nodes with 8 GPUs and 10 billion records. The speeds of nodes differ by 10 %,
// and 5 % of the nodes run at half speed.
var base = setting{
	nodes: 64, gpus: 8, records: 10e9, rate: 1000, spread: 0.1, slow: 0.05,
	shards: 8 * 64, claim: true, resume: true, copies: true, beat: 5,
	queue: 10, load: 90, edge: 5,
	checkpoint: 30, checkpointCost: 0.1,
	expiry: 60, requeue: 360, repair: 3600,
	bytes: 1000, copyRate: 1e9,
}

const (
	hour = 3600.0
	day  = 24 * hour
)

// scene is a cluster and a run.
type scene struct {
	name   string
	change func(*setting)
}

// shardScenes show what the number of shards affects.
var shardScenes = []scene{
	{"equal nodes", func(s *setting) { s.spread, s.slow = 0, 0 }},
	{"speeds differ by 10 %", func(s *setting) { s.slow = 0 }},
	{"… and 5 % of nodes run at half speed", func(*setting) {}},
	{"… and a node fails every day", func(s *setting) { s.mtbf = day }},
	{"… or is preempted every 4 hours", preempted},
	{"… a run of 11 minutes", func(s *setting) { s.records /= 30 }},
	{"… without copies of the last shards", func(s *setting) { s.copies = false }},
	{"… without claiming: a task, and a load, per shard", func(s *setting) { s.claim, s.copies = false, false }},
}

// failureScenes are rates of failures: none; as in a large training cluster, 419 in 54 days
// on 2,048 nodes; far more; and preemptible nodes that get a warning.
var failureScenes = []scene{
	{"no failures", func(*setting) {}},
	{"a node fails every 264 days", func(s *setting) { s.mtbf = 264 * day }},
	{"a node fails every 10 days", func(s *setting) { s.mtbf = 10 * day }},
	{"a node fails every day", func(s *setting) { s.mtbf = day }},
	{"a node is preempted every 4 hours", preempted},
}

func preempted(s *setting) { s.mtbf, s.warned, s.repair, s.requeue = 4*hour, true, hour/2, 60 }

// rounds is how often each setting is simulated, with other random numbers.
const rounds = 40

func main() { report(os.Stdout) }

func report(w io.Writer) {
	shardTable(w, []int{1, 2, 4, 8, 16, 64})
	fmt.Fprintf(w, "computed twice because of copies: %.2f %%\n", 100*mean(base).copied)
	checkpointTable(w, []float64{5, 30, 120, 600, 3600})
	chunkTable(w, []int{1, 4, 16, 64, 256})
}

// shardTable shows the efficiency by shards per node.
func shardTable(w io.Writer, perNode []int) {
	var head []string
	for _, n := range perNode {
		head = append(head, fmt.Sprint(n))
	}
	header(w, "shards per node", head)
	for _, c := range shardScenes {
		row(w, c.name, len(perNode), func(i int) string {
			s := base
			c.change(&s)
			s.shards = perNode[i] * s.nodes
			return percent(mean(s).efficiency)
		})
	}
}

// checkpointTable shows efficiency and recomputed records by the interval of checkpoints;
// its last column is a run that cannot resume inside a shard.
func checkpointTable(w io.Writer, intervals []float64) {
	var head []string
	for _, seconds := range intervals {
		head = append(head, fmt.Sprintf("%.0f s", seconds))
	}
	header(w, "checkpoint every", append(head, "never"))
	for _, c := range failureScenes {
		row(w, c.name, len(intervals)+1, func(i int) string {
			s := base
			c.change(&s)
			if i < len(intervals) {
				s.checkpoint = intervals[i]
			} else {
				s.checkpoint, s.resume = 1e9, false
			}
			o := mean(s)
			return percent(o.efficiency) + ", " + fmt.Sprintf("%.3f %%", 100*o.recomputed)
		})
	}
}

// chunkTable shows the efficiency of one node by chunks per GPU.
func chunkTable(w io.Writer, perGPU []int) {
	var head []string
	for _, n := range perGPU {
		head = append(head, fmt.Sprint(n))
	}
	header(w, "chunks per GPU", head)
	for _, c := range []struct {
		name  string
		share bool
	}{{"idle GPUs take over the rest of chunks", true}, {"they do not", false}} {
		row(w, c.name, len(perGPU), func(i int) string {
			sum := 0.0
			for seed := range uint64(rounds) {
				sum += simulateNode(node8(perGPU[i], c.share), seed) / rounds
			}
			return percent(sum)
		})
	}
}

// node8 is a shard of base on a node whose GPUs differ by 5 %.
func node8(perGPU int, share bool) nodeSetting {
	return nodeSetting{
		gpus: base.gpus, perGPU: perGPU, share: share, spread: 0.05, chunkCost: 0.02, batch: 0.25,
		seconds: base.records / float64(base.shards) / base.rate / float64(base.gpus),
	}
}

func header(w io.Writer, name string, columns []string) {
	fmt.Fprintf(w, "| %s |", name)
	for _, column := range columns {
		fmt.Fprintf(w, " %s |", column)
	}
	fmt.Fprint(w, "\n|---|")
	for range columns {
		fmt.Fprint(w, "---|")
	}
	fmt.Fprintln(w)
}

func row(w io.Writer, name string, columns int, cell func(int) string) {
	fmt.Fprintf(w, "| %s |", name)
	for i := range columns {
		fmt.Fprintf(w, " %s |", cell(i))
	}
	fmt.Fprintln(w)
}

// mean simulates a setting several times.
func mean(s setting) (m outcome) {
	for seed := range uint64(rounds) {
		o := simulate(s, seed)
		m.hours += o.hours / rounds
		m.efficiency += o.efficiency / rounds
		m.recomputed += o.recomputed / rounds
		m.copied += o.copied / rounds
		m.failures += o.failures
	}
	return m
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
