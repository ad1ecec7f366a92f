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
	claim  bool    // a node takes further shards with its model loaded
	resume bool    // an attempt starts from the last checkpoint of the one before
	copies bool    // an idle node computes a copy of a shard that a slower one computes last
	beat   float64 // how old what a node knows of another may be

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
	recomputed float64 // records computed again after a failure, as a share of all
	copied     float64 // records computed twice because of copies, whichever attempt won
	failures   int
}

// copyGain has the value of internal/cluster.
const copyGain = 1.5

type node struct {
	speed   float64
	up      bool
	since   float64 // when it came up
	upTime  float64 // before since
	loaded  bool
	busy    bool
	shard   int
	begin   float64 // when it starts to compute the shard
	from    float64 // the records of the shard that it took over
	attempt int     // distinguishes events of this attempt from those of earlier ones
}

type shard struct {
	done    float64 // records that the next attempt need not compute
	pending bool
	from    float64 // when it may be taken
	copied  bool
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
	copied     float64
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
		hours: s.now / 3600, efficiency: s.records / available, recomputed: s.recomputed / s.records, copied: s.copied / s.records, failures: s.failures,
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
		other := s.other(e.node)
		if other >= 0 {
			s.giveUp(other, n.from)
		}
		s.take(e.node)
		if other >= 0 {
			s.take(other)
		}
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
		s.compute(i, at, next.done)
		return
	}
	if at, done := s.slowest(i); at >= 0 {
		s.shards[at].copied = true
		s.compute(i, at, done)
		return
	}
	n.loaded = false
}

// compute makes a node compute the rest of a shard after the records that are done.
func (s *simulation) compute(i, at int, done float64) {
	n := &s.nodes[i]
	cost := s.edge
	if !n.loaded {
		cost = s.load
		if s.now > 0 {
			cost += s.queue
		}
	}
	cost += done * s.bytes / s.copyRate
	n.busy, n.loaded, n.shard, n.begin, n.from = true, true, at, s.now+cost, done
	n.attempt++
	s.add(event{at: s.end(n), kind: finished, node: i, attempt: n.attempt})
}

// end is when a node will have computed its shard.
func (s *simulation) end(n *node) float64 { return n.begin + (s.size()-n.from)/s.pace(n) }

// slowest returns the shard that will be done last, and how much of it is committed, if a
// copy on a node would be done much sooner; -1 if there is none. The rule is that of
// internal/cluster.
func (s *simulation) slowest(i int) (found int, done float64) {
	found = -1
	if !s.copies || !s.nodes[i].loaded {
		return found, done
	}
	longest := 0.0
	for other := range s.nodes {
		n := &s.nodes[other]
		theirs := s.end(n) - s.now
		if !n.busy || s.shards[n.shard].copied || s.now <= n.begin || theirs <= longest {
			continue
		}
		committed := n.from + s.saved(n)
		if mine := (s.size() - committed) / s.pace(&s.nodes[i]); theirs > copyGain*mine+s.beat {
			found, longest, done = n.shard, theirs, committed
		}
	}
	return found, done
}

// other returns another node that computes the shard of a node; -1 if there is none.
func (s *simulation) other(i int) int {
	for other := range s.nodes {
		if other != i && s.nodes[other].busy && s.nodes[other].shard == s.nodes[i].shard {
			return other
		}
	}
	return -1
}

// giveUp ends an attempt whose shard another one has committed, which had started after
// the records taken.
func (s *simulation) giveUp(i int, taken float64) {
	n := &s.nodes[i]
	n.busy = false
	n.attempt++
	s.copied += max(0, n.from+s.computed(n)-max(taken, n.from))
}

// computed is how many records a node has computed of its shard, saved how many of them are
// in a checkpoint.
func (s *simulation) computed(n *node) float64 { return max(0, s.now-n.begin) * s.pace(n) }

func (s *simulation) saved(n *node) float64 {
	interval := s.checkpoint + s.checkpointCost
	return math.Floor(max(0, s.now-n.begin)/interval) * interval * s.pace(n)
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
	computed, saved := s.computed(n), 0.0
	if s.resume {
		saved = computed
		if !s.warned {
			saved = s.saved(n)
		}
	}
	if s.other(i) >= 0 { // which continues
		s.copied += computed
		return
	}
	lost := &s.shards[n.shard]
	lost.pending, lost.from = true, s.now+s.expiry
	if s.warned {
		lost.from = s.now // it says so before it leaves
	}
	s.add(event{at: s.now + s.requeue, kind: requeued, node: i, shard: n.shard})
	s.recomputed += computed - saved
	if !s.resume {
		lost.done = 0
		return
	}
	lost.done = min(s.size(), n.from+saved)
}
