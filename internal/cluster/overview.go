package cluster

import (
	"cmp"
	"context"
	"slices"

	"github.com/gpurun/gpurun/internal/fault"
)

// States are all states of a shard, in the order in which people want to see them.
var States = []State{Done, Running, Stopped, Lost, Failed, Pending}

// Overview is a run as its shared folder shows it.
type Overview struct {
	Output  string `json:"output"`
	Folder  string `json:"folder"`
	Records int64  `json:"records"`
	// Done records are computed, Failed of them have failed. Answers: see [Shard].
	Done    int64 `json:"done"`
	Failed  int64 `json:"failed"`
	Answers int64 `json:"answers,omitempty"`
	// Rate is the sum over all running shards, in records per second: what their machines have
	// averaged so far.
	Rate float64 `json:"records_per_second"`
	// Merged: the output is written.
	Merged bool    `json:"merged"`
	Shards []Shard `json:"shards"`
	// Nodes are the machines that have claimed shards, by name.
	Nodes []Node `json:"nodes"`
}

// Node is what a machine has to do with a run.
type Node struct {
	Host string `json:"host"`
	// Running are the shards that it computes, Done how many it has committed, Failed how
	// many ended there with an error or a loss.
	Running []int `json:"running"`
	Done    int   `json:"done"`
	Failed  int   `json:"failed"`
	// Rate is in records per second.
	Rate float64 `json:"records_per_second"`
}

// Reached counts the records that are done or have an answer.
func (o Overview) Reached() int64 { return o.Done + o.Answers }

// Count returns how many shards are in a state.
func (o Overview) Count(state State) (n int) {
	for _, s := range o.Shards {
		if s.State == state {
			n++
		}
	}
	return n
}

// Overview returns the state of the run and of its shards.
func (w *Watch) Overview(ctx context.Context) (Overview, error) {
	o := Overview{Output: w.run.Output, Folder: w.run.Dir, Records: w.run.Records}
	shards, err := w.Shards(ctx)
	if err != nil {
		return o, err
	}
	o.Shards = shards
	for _, s := range shards {
		o.Done += s.Done
		o.Failed += s.Failed
		o.Answers += s.Answers
	}
	o.Rate = totalRate(shards)
	o.Nodes = nodes(shards)
	o.Merged = w.run.Merged()
	return o, nil
}

// totalRate returns the rate of the running shards together. A shard that has just begun says
// little about its rate, so each counts with the rate of all shards of its machine, or else of all
// machines.
func totalRate(shards []Shard) (total float64) {
	type work struct{ records, seconds float64 }
	hosts := make(map[string]work)
	var all work
	for _, s := range shards {
		if n := float64(s.Reached()); s.Rate > 0 && n > 0 {
			w := hosts[s.Host]
			hosts[s.Host] = work{w.records + n, w.seconds + n/s.Rate}
			all = work{all.records + n, all.seconds + n/s.Rate}
		}
	}
	for _, s := range shards {
		w, known := hosts[s.Host]
		if !known {
			w = all
		}
		if s.State == Running && w.seconds > 0 {
			total += w.records / w.seconds
		}
	}
	return total
}

// nodes sums up shards by machine.
func nodes(shards []Shard) []Node {
	list := []Node{}
	for _, s := range shards {
		if s.Host == "" {
			continue
		}
		i := slices.IndexFunc(list, func(n Node) bool { return n.Host == s.Host })
		if i < 0 {
			i = len(list)
			list = append(list, Node{Host: s.Host, Running: []int{}})
		}
		n := &list[i]
		switch s.State {
		case Running:
			n.Running, n.Rate = append(n.Running, s.Index), n.Rate+s.Rate
		case Done:
			n.Done++
		case Failed, Lost:
			n.Failed++
		}
	}
	slices.SortFunc(list, func(a, b Node) int { return cmp.Compare(a.Host, b.Host) })
	return list
}

// CheckIdle reports why the run cannot be corrected; nil if it can.
func (o Overview) CheckIdle() error {
	if n := o.Count(Done); n > 0 {
		return fault.RunBegun.New("%d of %d shards are computed", n, len(o.Shards))
	}
	for _, s := range o.Shards {
		if s.State == Running {
			return fault.RunBegun.New("pid %d on %s computes shard %d", s.PID, s.Host, s.Index)
		}
	}
	return nil
}

// Claimed reports whether any process has begun to compute a shard.
func (o Overview) Claimed() bool {
	return slices.ContainsFunc(o.Shards, func(s Shard) bool { return s.Claims > 0 })
}
