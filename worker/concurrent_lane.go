package worker

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/worker/early"
)

// lane is a chunk on its way through a concurrent kernel.
type lane struct {
	run    *chunkRun
	part   string     // the prefix of its parts' names
	cuts   int        // how often it has ended a part and begun another
	log    *early.Log // of its answers
	groups []*group   // that are read and not written, in order
	feeds  int        // index of the first group with records that were never sent
	read   bool       // nothing remains to be read
	ended  bool       // no record is sent for the first time
	halted bool       // no record is sent at all
	again  *rereader  // reads the records of spilled groups; nil if none is being written
	// held is how much is read and not written: records, and the bytes of lines and answers.
	held load
}

// group is a batch as it was read. It goes to the writer when all of its records have
// answers and the groups before it are written.
type group struct {
	lane    *lane
	first   int64 // number of its first record
	spilled *span // instead of all that follows, if its answers are only in the log
	task    *batchTask
	records []*flight // of task.sent
	open    int       // records without an answer
	unsent  int       // index of the first record that was never sent
}

const (
	// aheadRounds is how many records may be in memory for each one in flight. Only groups
	// with a record that is not answered stay there.
	aheadRounds = 256
	leastAhead  = 4096
	// aheadBytes limits the memory of their lines and answers.
	aheadBytes = 512 << 20
)

// hasRoom reports whether another group may be read.
func (c *concurrent) hasRoom() bool { return c.holdsLess(1) }

// holdsLess reports whether less than a share of the memory for groups is in use.
func (c *concurrent) holdsLess(share int) bool {
	held := c.held()
	return held.records < max(leastAhead, aheadRounds*c.worker.host.info.Concurrency)/share && held.bytes < aheadBytes/share
}

// held returns how much all lanes hold.
func (c *concurrent) held() (held load) {
	for _, l := range c.lanes {
		held.records, held.bytes = held.records+l.held.records, held.bytes+l.held.bytes
	}
	return held
}

// reading returns the lane to read from, or nil if there is none.
func (c *concurrent) reading() *lane {
	for _, l := range c.lanes {
		if !l.read && !l.ended && !l.halted {
			return l
		}
	}
	return nil
}

// take takes a group from the reader. Records with a logged answer are settled.
func (c *concurrent) take(l *lane, batch readBatch, ok bool) error {
	if !ok {
		l.read = true
		return nil
	}
	if batch.err != nil {
		return batch.err
	}
	task := batch.task
	task.run, l.run.unsubmitted = l.run, task.batch.Rest()
	task.load = task.loadOf(0, len(task.records))
	task.load.records = len(task.batch.Records)
	task.verdicts = make([]verdict, len(task.sent))
	g := &group{lane: l, first: task.batch.Records[0].Index, task: task, records: make([]*flight, len(task.sent)), open: len(task.sent)}
	l.groups = append(l.groups, g)
	l.held.records, l.held.bytes = l.held.records+task.load.records, l.held.bytes+task.load.bytes
	c.worker.computed.Add(int64(len(task.batch.Records) - len(task.sent))) // rejected before the kernel
	for i := range g.records {
		if err := c.place(g, i); err != nil {
			return err
		}
	}
	g.skipSent()
	return c.complete(g)
}

// place finds out what is known about a record: its answer, or nothing.
func (c *concurrent) place(g *group, i int) error {
	number := g.task.batch.Records[g.task.sent[i]].Index
	f := &flight{number: number, record: g.task.toCompute(i, i+1).At(0), group: g, at: i}
	g.records[i] = f
	switch {
	case g.lane.log.Has(number):
		logged, err := g.lane.log.Get(number)
		if err != nil {
			return fault.Wrap(fault.Storage, err)
		}
		f.sent = true
		g.settle(i, answered(answerOf(logged)))
		c.judge(nil)
	case c.worker.setup.GiveUp != nil:
		f.sent = true
		g.settle(i, verdict{fault: c.worker.setup.GiveUp})
	case g.task.pending != nil:
		f.sent = true // or will be, out of order
		c.fetch(f)
	}
	return nil
}

// skipSent moves on to the first record that was never sent.
func (g *group) skipSent() {
	for g.unsent < len(g.records) && g.records[g.unsent].sent {
		g.unsent++
	}
}

// settle gives a record its verdict.
func (g *group) settle(i int, v verdict) {
	g.task.verdicts[i] = v
	g.open--
	g.releaseFiles(i)
	if v.results != nil {
		for _, line := range v.results.At(0).Lines {
			g.task.load.bytes += len(line)
			g.lane.held.bytes += len(line)
		}
	}
	g.lane.run.out.computed(1)
}

// advance passes the groups that are complete to the writer, in order, up to one that is
// spilled.
func (c *concurrent) advance(l *lane) error {
	for len(l.groups) > 0 && l.groups[0].open == 0 && l.groups[0].spilled == nil {
		g := l.groups[0]
		l.groups, l.feeds = l.groups[1:], max(0, l.feeds-1)
		l.held.records, l.held.bytes = l.held.records-g.task.load.records, l.held.bytes-g.task.load.bytes
		l.run.stats.Batches++
		if err := l.run.write(g.task); err != nil {
			return err
		}
	}
	return nil
}

// finished reports whether everything of the lane is written.
func (l *lane) finished() bool { return l.read && len(l.groups) == 0 }

// unfed returns how many records are read and were never sent.
func (l *lane) unfed() (n int) {
	for _, g := range l.groups[l.feeds:] {
		n += len(g.records) - g.unsent
	}
	return n
}

// nextUnsent returns the first record that was never sent, or nil if none is read.
func (l *lane) nextUnsent() *flight {
	for l.feeds < len(l.groups) {
		g := l.groups[l.feeds]
		if g.skipSent(); g.unsent < len(g.records) {
			return g.records[g.unsent]
		}
		l.feeds++
	}
	return nil
}

// unsent returns what was never sent to the kernel.
func (l *lane) unsent() chunk.Chunk {
	if f := l.nextUnsent(); f != nil {
		return f.group.task.batch.From(f.group.task.sent[f.at])
	}
	return l.run.unsubmitted
}

// cut ends the part of a lane after the groups that are written, so that they can be
// committed, and continues with another part. Nothing is read or sent again.
func (c *concurrent) cut(l *lane) error {
	c.worker.stops.forget(l.run)
	if l.run.rest.First == l.run.first || l.run.rest.Records == 0 {
		return nil // there is nothing to commit, or the lane is about to end
	}
	if err := l.log.Rotate(l.run.rest.First, l.partName()); err != nil {
		return fault.Wrap(fault.Storage, err)
	}
	l.cuts++
	done, err := l.run.cut(l.partName())
	if err != nil {
		return err
	}
	c.report(done)
	return nil
}

// partName returns the prefix of the names of the current part's files.
func (l *lane) partName() string {
	if l.cuts == 0 {
		return l.part
	}
	return fmt.Sprintf("%s-%d", l.part, l.cuts)
}

// close ends a lane after its answered prefix. The answers behind that stay in the log. The
// kernel must not have records of the lane.
func (c *concurrent) close(l *lane) error {
	if len(l.groups) > 0 && l.groups[0].spilled == nil {
		if err := l.endIn(l.groups[0]); err != nil {
			return err
		}
	}
	l.endReread()
	c.forget(l)
	if err := l.log.Rotate(l.run.rest.First, l.partName()); err != nil {
		return fault.Wrap(fault.Storage, err)
	}
	l.log.Close()
	done, err := l.run.close(nil)
	if err != nil {
		return err
	}
	c.report(done)
	return nil
}

// report sends the outcome of a chunk, or of its beginning.
func (c *concurrent) report(done wire.Done) {
	done.Computed = c.worker.computed.Load()
	done.Sources, done.Warnings = c.worker.host.takeSources(), c.worker.host.takeWarnings()
	crash.Point("worker-part-closed")
	c.worker.send(wire.Message{Done: &done})
}

// endIn passes the answered records at the beginning of the first unfinished group to the
// writer. What follows is the rest of the chunk.
func (l *lane) endIn(g *group) error {
	n := 0
	for g.task.verdicts[n] != (verdict{}) {
		n++
	}
	at := g.task.sent[n]
	rest := g.task.batch.From(at)
	if at > 0 {
		task := *g.task
		task.ready, task.sent, task.verdicts = at, task.sent[:n], task.verdicts[:n]
		if err := l.run.write(&task); err != nil {
			return err
		}
	}
	l.run.rest = rest
	return nil
}

// forget drops a lane and its records that wait to be sent.
func (c *concurrent) forget(l *lane) {
	c.lanes = slices.DeleteFunc(c.lanes, func(other *lane) bool { return other == l })
	ofLane := func(f *flight) bool { return f.group.lane == l }
	c.queue, c.waiting, c.ready = without(c.queue, ofLane), without(c.waiting, ofLane), without(c.ready, ofLane)
	maps.DeleteFunc(c.fetching, func(_ int64, f *flight) bool { return ofLane(f) })
}
