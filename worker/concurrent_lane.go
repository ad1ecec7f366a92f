package worker

import (
	"maps"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// lane is a chunk on its way through a concurrent kernel.
type lane struct {
	run    *chunkRun
	part   string
	groups []*group  // that are read and not written, in order
	feeds  int       // index of the first group with records that were never sent
	read   bool      // nothing remains to be read
	ended  bool      // no record is sent for the first time
	halted bool      // no record is sent at all
	again  *rereader // reads the records of spilled groups; nil if none is being written
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
	records []*flight     // of task.sent
	open    int           // records without an answer
	unsent  int           // index of the first record that was never sent
	flying  int           // records at the kernel, which reads them in this group's memory
	left    bool          // its chunk has ended: release the memory when no record flies
	files   []fetchRecord // then, too
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
	var held load
	for _, l := range c.lanes() {
		held.records, held.bytes = held.records+l.held.records, held.bytes+l.held.bytes
	}
	return held.records < max(leastAhead, aheadRounds*c.worker.host.info.Concurrency)/share && held.bytes < aheadBytes/share
}

// lanes returns the lanes that there are, the current one first.
func (c *concurrent) lanes() []*lane {
	switch {
	case c.lane == nil:
		return nil
	case c.next == nil:
		return []*lane{c.lane}
	}
	return []*lane{c.lane, c.next}
}

// reading returns the lane to read from, or nil if there is none.
func (c *concurrent) reading() *lane {
	for _, l := range c.lanes() {
		if !l.read && !l.ended && !l.halted {
			return l
		}
	}
	return nil
}

// take takes a group from the reader. Records with a logged answer are settled, and those
// that are in flight since the last chunk stay there.
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
	for i := range g.records {
		if err := c.place(g, i); err != nil {
			return err
		}
	}
	g.skipSent()
	return c.complete(g)
}

// place finds out what is known about a record: its answer, that it is at the kernel or
// will be tried again, or nothing.
func (c *concurrent) place(g *group, i int) error {
	number := g.task.batch.Records[g.task.sent[i]].Index
	f := c.flights[number]
	if f == nil {
		if f = c.parked[number]; f == nil {
			f = &flight{number: number}
		}
		f.record = g.task.toCompute(i, i+1).At(0)
	}
	f.group, f.at, g.records[i], f.fileBytes = g, i, f, 0
	switch {
	case c.flights[number] != nil:
	case c.log.Has(number):
		logged, err := c.log.Get(number)
		if err != nil {
			return fault.Wrap(fault.Storage, err)
		}
		f.sent = true
		g.settle(i, answered(answerOf(logged)))
		c.judge(nil)
	case c.parked[number] != nil:
		c.unpark(f)
	default:
		failure, err := c.loggedFailure(number)
		switch {
		case failure != nil:
			f.sent = true
			g.settle(i, verdict{fault: failure})
		case err == nil && g.task.pending != nil:
			f.sent = true // or will be, out of order
			c.fetch(f)
		}
		return err
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

// close ends the lane after its answered prefix. The answers behind that stay in the log.
// With cut, records at the kernel stay there. It returns how many records of the rest this
// worker has begun.
func (c *concurrent) close(cut bool) (begun int64, err error) {
	l := c.lane
	unsent := l.unsent()
	if len(l.groups) > 0 && l.groups[0].spilled == nil {
		if err := l.endIn(l.groups[0]); err != nil {
			return 0, err
		}
	}
	if cut {
		begun = max(0, unsent.First-l.run.rest.First)
	}
	c.leave(l, cut)
	if err := c.log.Rotate(l.run.rest.First, l.part); err != nil {
		return begun, fault.Wrap(fault.Storage, err)
	}
	return begun, nil
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
		if g.flying > 0 { // the writer releases the memory of what it has written
			task.batch = task.batch.Clone(at)
		}
		if err := l.run.write(&task); err != nil {
			return err
		}
	}
	l.run.rest = rest
	return nil
}

// leave keeps what outlives the lane: the memory that the kernel reads and, with cut, what
// is known about records that will be sent again.
func (c *concurrent) leave(l *lane, cut bool) {
	for _, g := range l.groups {
		if g.flying > 0 {
			g.left, g.files = true, l.run.reader.taken.detach(g.task.batch)
		}
		for i, f := range g.records {
			if f.group != g {
				continue
			}
			f.group = nil
			if v := g.task.verdicts[i]; cut && f.sent && c.flights[f.number] == nil && !c.log.Has(f.number) {
				f.final = v
				c.parked[f.number] = f
			}
		}
	}
	ofLane := func(f *flight) bool { return f.group == nil }
	c.queue, c.waiting, c.ready = without(c.queue, ofLane), without(c.waiting, ofLane), without(c.ready, ofLane)
	maps.DeleteFunc(c.fetching, func(_ int64, f *flight) bool { return ofLane(f) })
}
