package worker

import (
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/wire"
)

// group is a run of consecutive records that are read as one and written as one, in input order,
// when all of them have verdicts. It is one batch, unless records are grouped by size
// (--group-by): then it is a window that is computed in batches of similar records. The kernel
// gets the records of each batch in input order too, so that it finds them in shared memory where
// the reader has put them.
type group struct {
	lane  *lane
	task  *batchTask // all of it, as it is written
	left  grouping   // of task.sent, what is not in a batch yet
	open  int        // records of task.sent without a verdict
	size  int        // records per batch, when it was read
	trial trial      // of the batches that the kernel computed at the first attempt
	// suspect, if not -1, is the record of task.sent before which the chunk ends, because
	// another device must compute it.
	suspect int

	// Of a concurrent kernel:
	first   int64 // number of its first record
	spilled *span // instead of the task, if its answers are only in the log
}

const (
	windowBatches = wire.WindowBatches
	// windowShare is how many times --batch-bytes a window may hold.
	windowShare = 2
)

// newGroup makes a group of what was read. The smallest records of a window come first, or its
// largest.
func newGroup(task *batchTask, size int, smallest bool) *group {
	g := &group{task: task, open: len(task.sent), suspect: -1, size: size}
	task.group = g
	if task.costs != nil {
		sizes := make([]int, len(task.records))
		for i := range task.records {
			sizes[i] = task.size(i)
		}
		task.verdicts, g.left = make([]verdict, len(task.sent)), newGrouping(task.costs, sizes, smallest)
	}
	return g
}

// addVerdicts adds the verdicts of a batch. Some are missing if the chunk ends in it.
func (g *group) addVerdicts(task *batchTask) {
	for i := range task.sent {
		v := task.verdict(i)
		if v == (verdict{}) {
			continue
		}
		g.open--
		if task != g.task {
			g.task.verdicts[task.at[i]] = v
		}
	}
	g.task.batches = append(g.task.batches, task.took)
}

// answered returns how many records of task.sent have verdicts before the first that has none.
func (g *group) answered() int {
	for i, v := range g.task.verdicts {
		if v == (verdict{}) {
			return i
		}
	}
	return len(g.task.verdicts)
}

// endBefore ends the group before a record that another device must compute. What follows
// it is computed there, too.
func (g *group) endBefore(at int) {
	if g.suspect < 0 || at < g.suspect {
		g.suspect = at
	}
	g.left.only(func(i int) bool { return i < g.suspect })
}

// good counts a batch that the kernel has computed at the first attempt.
func (g *group) good(took time.Duration) {
	g.trial.batches++
	g.trial.took += took
}

// tried returns the group as a trial of its batch size. Another size than that asked for means
// that it is none: something else limited a batch.
func (g *group) tried() trial {
	of := g.trial
	if of.records = len(g.task.batch.Records); of.records == of.batches*g.size {
		of.size = g.size
	}
	return of
}

// upTo returns the beginning of the group, up to the n-th record of task.sent, as it is written.
func (g *group) upTo(n int) *batchTask {
	task := *g.task
	task.ready, task.sent, task.verdicts = task.sent[n], task.sent[:n], task.verdicts[:n]
	return &task
}

// next returns the next batch of a window. It is empty if there is none.
func (g *group) next() *batchTask {
	w := g.lane.worker
	task := g.task.pick(g.left.next(w.sizes.budget(w.setup.Records.BatchBytes)))
	if g.task.batch.Rest().Records == 0 && len(g.left.order) <= ahead*g.size {
		g.lane.reader.reportReadComplete() // or an idle worker could not have the next chunk
	}
	return task
}

// groups are consecutive groups of a lane, in input order.
type groups []*group

// open returns the group with batches that are not submitted yet, nil if there is none.
func (gs groups) open() *group {
	if last := len(gs) - 1; last >= 0 && len(gs[last].left.order) > 0 {
		return gs[last]
	}
	return nil
}

// leave gives up what is not submitted, and the window that will not be complete without it.
func (l *lane) leave() {
	l.ended = true
	if g := l.groups.open(); g != nil {
		l.unsubmitted = g.task.batch.From(0)
		g.left.order = nil
	}
}

// pass takes a batch whose records have verdicts, and passes its group to the writer when that is
// complete.
func (l *lane) pass(task *batchTask) error {
	g := task.group
	g.addVerdicts(task)
	if len(task.sent) > 0 {
		l.worker.opinion.add(task.failures(), false)
	}
	l.out.computed(len(task.sent))
	if g.open > 0 {
		return nil
	}
	l.worker.opinion.addRefused(g.task)
	l.groups = l.groups[1:] // batches end in the order of their groups
	if g.trial.batches > 0 {
		l.worker.sizes.goodGroup(g.tried())
	}
	return l.write(g.task)
}

// endGroup ends the chunk before a group that is not complete, so that whoever continues there
// computes the same batches. If a record of it must be computed by another device, and all before
// that are, the chunk ends before that one instead. If records are computed independently of each
// other, it ends before the first without a verdict.
func (l *lane) endGroup() error {
	g := l.groups[0]
	l.groups, l.ended = nil, true
	if g.spilled != nil {
		return nil
	}
	n := g.answered()
	var rest chunk.Chunk
	switch batch := g.task.batch; {
	case l.reader.each:
		rest = batch.From(g.task.sent[n])
	case n == g.suspect && (l.handedBack == nil || batch.Records[0].Index < l.handedBack.First):
		var elsewhere chunk.Chunk
		elsewhere, rest = batch.Alone(g.task.sent[n])
		l.elsewhere = &elsewhere
	default:
		return nil
	}
	err := l.write(g.upTo(n))
	l.rest = rest
	return err
}
