// Command scale simulates a run on a cluster, event by event, and prints the tables of
// docs/scale.md: how the number of shards, the interval of checkpoints and failures of
// nodes affect how much of the GPUs' time becomes output.
//
//	go run ./bench/scale
package main

import (
	"fmt"
	"io"
	"os"
)

// base is 64 nodes with 8 GPUs and 10 billion records. Of the nodes, 5 % run at half
// speed; the others differ by 10 %.
var base = setting{
	nodes: 64, gpus: 8, records: 10e9, rate: 1000, spread: 0.1, slow: 0.05,
	shards: 4 * 64, claim: true, resume: true,
	queue: 10, load: 90, edge: 5,
	checkpoint: 30, checkpointCost: 0.1,
	expiry: 60, requeue: 360, repair: 3600,
	bytes: 1000, copyRate: 1e9,
}

const (
	hour = 3600.0
	day  = 24 * hour
)

// clusters are rates of failures: none; as in a large training cluster (419 in 54 days on
// 2,048 nodes); ten times as many; and preemptible nodes that get a warning.
var clusters = []struct {
	name   string
	change func(*setting)
}{
	{"no failures", func(*setting) {}},
	{"a node fails every 264 days", func(s *setting) { s.mtbf = 264 * day }},
	{"a node fails every 10 days", func(s *setting) { s.mtbf = 10 * day }},
	{"a node fails every day", func(s *setting) { s.mtbf = day }},
	{"a node is preempted every 4 hours", func(s *setting) { s.mtbf, s.warned, s.repair, s.requeue = 4*hour, true, 0.5*hour, 60 }},
}

// rounds is how often each setting is simulated, with other random numbers.
const rounds = 40

func main() { report(os.Stdout) }

func report(w io.Writer) {
	fmt.Fprintf(w, "Shards per node (efficiency):\n\n| cluster |")
	perNode := []int{1, 2, 4, 8, 16, 64}
	for _, n := range perNode {
		fmt.Fprintf(w, " %d |", n)
	}
	rule(w, len(perNode))
	for _, c := range clusters {
		for _, claim := range []bool{true, false} {
			fmt.Fprintf(w, "| %s, %s |", c.name, map[bool]string{true: "claiming", false: "a task per shard"}[claim])
			for _, n := range perNode {
				s := base
				c.change(&s)
				s.claim, s.shards = claim, n*s.nodes
				fmt.Fprintf(w, " %s |", percent(mean(s).efficiency))
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprintf(w, "\nCheckpoint interval (efficiency, recomputed share):\n\n| cluster |")
	intervals := []float64{5, 30, 120, 600, 3600}
	for _, seconds := range intervals {
		fmt.Fprintf(w, " %.0f s |", seconds)
	}
	fmt.Fprint(w, " none |")
	rule(w, len(intervals)+1)
	for _, c := range clusters {
		fmt.Fprintf(w, "| %s |", c.name)
		for _, seconds := range append(intervals, 0) {
			s := base
			c.change(&s)
			if s.checkpoint = seconds; seconds == 0 {
				s.checkpoint, s.resume, s.warned = 1e9, false, false
			}
			o := mean(s)
			fmt.Fprintf(w, " %s, %s |", percent(o.efficiency), small(o.recomputed))
		}
		fmt.Fprintln(w)
	}
}

func rule(w io.Writer, columns int) {
	fmt.Fprint(w, "\n|---|")
	for range columns {
		fmt.Fprint(w, "---|")
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
		m.failures += o.failures
	}
	return m
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// small writes a share of which most are far below a percent.
func small(share float64) string { return fmt.Sprintf("%.4f %%", 100*share) }
