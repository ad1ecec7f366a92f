package main

import (
	"container/heap"
	"math"
	"math/rand/v2"
)

// setting is a run on a cluster, in seconds, records and bytes.
type setting struct {
	nodes, gpus int
	records     float64
	rate        float64 // records per second of an average GPU
	// spread is the standard deviation of the logarithm of the nodes' speeds; slow is the
	// share of nodes that run at half speed.
	spread, slow float64

	shards int
	claim  bool // a node takes further shards with its model loaded
	resume bool // an attempt starts from the last checkpoint of the one before

	queue float64 // from the end of a task to the start of the next on the same node
	load  float64 // starting a task: processes, model
	edge  float64 // between two shards: last batches, commit, claim, first batches

	checkpoint     float64 // interval
	checkpointCost float64 // how long a node's GPUs wait for one

	mtbf    float64 // mean time between failures of one node; 0: none
	repair  float64 // until the node, or its replacement, takes work again
	warned  bool    // the node gets a signal first: preemption, not failure
	expiry  float64 // until another node may claim a lost shard
	requeue float64 // until the scheduler starts a lost task on an idle node

	bytes    float64 // output per record
	copyRate float64 // bytes per second at which an attempt verifies and takes over results
}

// outcome is what a simulated run cost.
type outcome struct {
	hours      float64
	efficiency float64 // share of the available GPU time that became output
	recomputed float64 // records computed more than once, as a share of all
	failures   int
}

type node struct {
	speed   float64
	up      bool
	since   float64 // when it came up
	upTime  float64 // before since
	loaded  bool
	busy    bool
	shard   int
	begin   float64 // when it starts to compute the shard
	attempt int     // distinguishes events of this attempt from those of earlier ones
}

type shard struct {
	done    float64 // records that the next attempt need not compute
	pending bool
	from    float64 // when it may be taken
}

type kind int

const (
	finished kind = iota // a node has finished its shard
	failed               // a node is lost
	repaired             // a node is back
	requeued             // the scheduler starts a lost task again
)

type event struct {
	at      float64
	kind    kind
	node    int
	shard   int
	attempt int
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

type simulation struct {
	setting
	random     *rand.Rand
	now        float64
	queued     events
	nodes      []node
	shards     []shard
	left       int
	recomputed float64
	failures   int
}

// simulate runs a setting once.
func simulate(s setting, seed uint64) outcome {
	sim := &simulation{setting: s, random: rand.New(rand.NewPCG(seed, 1))}
	sim.nodes = make([]node, s.nodes)
	sim.shards = make([]shard, s.shards)
	sim.left = s.shards
	for i := range sim.shards {
		sim.shards[i].pending = true
	}
	for i := range sim.nodes {
		speed := s.rate * float64(s.gpus) * math.Exp(s.spread*sim.random.NormFloat64())
		if sim.random.Float64() < s.slow {
			speed /= 2
		}
		sim.nodes[i] = node{speed: speed, up: true}
		sim.nextFailure(i)
		sim.take(i)
	}
	for sim.left > 0 {
		e := heap.Pop(&sim.queued).(event)
		sim.now = e.at
		sim.handle(e)
	}
	return sim.outcome()
}

func (s *simulation) outcome() outcome {
	available := 0.0
	for _, n := range s.nodes {
		up := n.upTime
		if n.up {
			up += s.now - n.since
		}
		available += up * n.speed
	}
	return outcome{
		hours: s.now / 3600, efficiency: s.records / available, recomputed: s.recomputed / s.records, failures: s.failures,
	}
}

func (s *simulation) add(e event) { heap.Push(&s.queued, e) }

func (s *simulation) handle(e event) {
	n := &s.nodes[e.node]
	switch e.kind {
	case finished:
		if e.attempt != n.attempt {
			return
		}
		n.busy = false
		s.left--
		if !s.claim {
			n.loaded = false
		}
		s.take(e.node)
	case failed:
		s.fail(e.node)
	case repaired:
		n.up, n.since = true, s.now
		s.nextFailure(e.node)
		s.take(e.node)
	case requeued:
		// A node that has found nothing to do has left; only the scheduler starts it again.
		for i := range s.nodes {
			if s.shards[e.shard].pending && s.nodes[i].up && !s.nodes[i].busy {
				s.shards[e.shard].from = s.now
				s.take(i)
			}
		}
	}
}

// nextFailure schedules the next failure of a node.
func (s *simulation) nextFailure(i int) {
	if s.mtbf > 0 {
		s.add(event{at: s.now + s.random.ExpFloat64()*s.mtbf, kind: failed, node: i})
	}
}

// take gives a node its next shard, if there is one.
func (s *simulation) take(i int) {
	n := &s.nodes[i]
	for at := range s.shards {
		next := &s.shards[at]
		if !next.pending || next.from > s.now {
			continue
		}
		next.pending = false
		cost := s.edge
		if !n.loaded {
			cost = s.load
			if s.now > 0 {
				cost += s.queue
			}
		}
		cost += next.done * s.bytes / s.copyRate
		n.busy, n.loaded, n.shard, n.begin = true, true, at, s.now+cost
		n.attempt++
		s.add(event{at: n.begin + (s.size()-next.done)/s.pace(n), kind: finished, node: i, attempt: n.attempt})
		return
	}
	n.loaded = false
}

// size is the number of records of a shard.
func (s *simulation) size() float64 { return s.records / float64(len(s.shards)) }

// pace is how many records a node computes per second, checkpoints included.
func (s *simulation) pace(n *node) float64 {
	return n.speed * s.checkpoint / (s.checkpoint + s.checkpointCost)
}

// fail takes a node away. Its shard may be taken again once the loss is noticed.
func (s *simulation) fail(i int) {
	n := &s.nodes[i]
	s.failures++
	n.upTime += s.now - n.since
	n.up, n.loaded = false, false
	s.add(event{at: s.now + s.repair, kind: repaired, node: i})
	if !n.busy {
		return
	}
	n.busy = false
	n.attempt++
	lost := &s.shards[n.shard]
	lost.pending, lost.from = true, s.now+s.expiry
	if s.warned {
		lost.from = s.now // it says so before it leaves
	}
	s.add(event{at: s.now + s.requeue, kind: requeued, node: i, shard: n.shard})
	computed := max(0, s.now-n.begin) * s.pace(n)
	saved := 0.0
	if s.resume {
		saved = computed
		if !s.warned {
			interval := s.checkpoint + s.checkpointCost
			saved = math.Floor(max(0, s.now-n.begin)/interval) * interval * s.pace(n)
		}
	}
	s.recomputed += computed - saved
	if !s.resume {
		lost.done = 0
		return
	}
	lost.done = min(s.size(), lost.done+saved)
}
