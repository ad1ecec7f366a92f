package worker

import (
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/worker/early"
)

// lane is a chunk on its way through a concurrent kernel.
type lane struct {
	run    *chunkRun
	log    *early.Log // of its answers
	feeds  int        // index of the run's first group with records that were never sent
	read   bool       // nothing remains to be read
	ended  bool       // no record is sent for the first time
	halted bool       // no record is sent at all
	// held is how much is read and not written: records, and the bytes of lines and answers.
	held load
	// short reports whether so much memory is in use that groups must be spilled.
	short func() bool
}

const (
	// aheadRounds is how many records may be in memory for each one in flight. Only groups
	// with a record that is not answered stay there.
	aheadRounds = 256
	leastAhead  = 4096
	// aheadBytes limits the memory of their lines and answers.
	aheadBytes = 512 << 20
)

// lanes are the chunks of a worker, by their first records.
type lanes []*lane

// holdLess reports whether less than a share of the memory for groups is in use.
func (ls lanes) holdLess(share, concurrency int) bool {
	held := ls.held()
	return held.records < max(leastAhead, aheadRounds*concurrency)/share && held.bytes < aheadBytes/share
}

// held returns how much all lanes hold.
func (ls lanes) held() (held load) {
	for _, l := range ls {
		held.records, held.bytes = held.records+l.held.records, held.bytes+l.held.bytes
	}
	return held
}

// reading returns the lane to read from, or nil if there is none.
func (ls lanes) reading() *lane {
	for _, l := range ls {
		if !l.read && !l.ended && !l.halted {
			return l
		}
	}
	return nil
}

// unsent returns the first record that was never sent, or nil if none is read.
func (ls lanes) unsent() *flight {
	for _, l := range ls {
		if l.ended || l.halted {
			continue
		}
		if f := l.nextUnsent(); f != nil {
			return f
		}
	}
	return nil
}

// rereads reports whether a lane has spilled records to write.
func (ls lanes) rereads() bool { return slices.ContainsFunc(ls, (*lane).rereads) }

// add appends a group that was read.
func (l *lane) add(g *group) {
	task := g.task
	task.run, l.run.unsubmitted = l.run, task.batch.Rest()
	task.load = task.loadOf(0, len(task.records))
	task.load.records = len(task.batch.Records)
	task.verdicts = make([]verdict, len(task.sent))
	g.lane, g.first, g.records = l, task.batch.Records[0].Index, make([]*flight, len(task.sent))
	l.run.groups = append(l.run.groups, g)
	l.held.records, l.held.bytes = l.held.records+task.load.records, l.held.bytes+task.load.bytes
}

// skipSent moves on to the first record that was never sent.
func (g *group) skipSent() {
	for g.unsent < len(g.records) && g.records[g.unsent].sent {
		g.unsent++
	}
}

// answer gives a record its verdict.
func (g *group) answer(i int, v verdict) {
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
func (l *lane) advance() error {
	for len(l.run.groups) > 0 && l.run.groups[0].open == 0 && l.run.groups[0].spilled == nil {
		g := l.run.groups[0]
		l.run.groups, l.feeds = l.run.groups[1:], max(0, l.feeds-1)
		l.held.records, l.held.bytes = l.held.records-g.task.load.records, l.held.bytes-g.task.load.bytes
		if err := l.run.write(g.task); err != nil {
			return err
		}
	}
	return nil
}

// finished reports whether everything of the lane is written.
func (l *lane) finished() bool { return l.read && len(l.run.groups) == 0 }

// unfed returns how many records are read and were never sent.
func (l *lane) unfed() (n int) {
	for _, g := range l.run.groups[l.feeds:] {
		n += len(g.records) - g.unsent
	}
	return n
}

// nextUnsent returns the first record that was never sent, or nil if none is read.
func (l *lane) nextUnsent() *flight {
	for l.feeds < len(l.run.groups) {
		g := l.run.groups[l.feeds]
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

// over applies the stop requests to the lane. It reports whether the lane has ended.
func (l *lane) over(r *roster) bool {
	stops := l.run.worker.stops
	switch {
	case l.finished():
		return true
	case stops.mustCut(l.run): // only its part ends
	case stops.mustEnd(l.run):
		l.halted = true
		return !r.atKernel(l)
	case stops.mustShare(l.run) && l.run.shares():
		l.share(r.atKernel(l) || r.pending(l))
	}
	return l.ended && !r.atKernel(l) && !r.pending(l) && !l.rereads()
}

// share hands back what was never sent, at once if others of its records are not finished, so that
// other workers can have it.
func (l *lane) share(busy bool) {
	if l.ended {
		return
	}
	l.ended = true
	rest := l.unsent()
	if rest.Records == 0 || l.run.handedBack != nil || !busy {
		return // the end of the chunk reports it
	}
	l.run.reportRemainder(rest)
}

// cut ends the part of a lane after the groups that are written, so that they can be
// committed, and continues with another part. Nothing is read or sent again.
func (l *lane) cut() error {
	if !l.run.mayCut() {
		return nil
	}
	if err := l.rotate(); err != nil {
		return err
	}
	return l.run.cut()
}

// rotate ends the part of the log with the part that ends.
func (l *lane) rotate() error {
	return fault.JobFiles.Wrap(l.log.Rotate(l.run.rest.First, l.run.partName()))
}

// close ends a lane after its answered prefix. The answers behind that stay in the log. The
// kernel must not have records of the lane.
func (l *lane) close() error {
	if len(l.run.groups) > 0 && l.run.groups[0].spilled == nil {
		g := l.run.groups[0]
		n := g.answered()
		rest := g.task.batch.From(g.task.sent[n])
		if g.task.sent[n] > 0 {
			if err := l.run.write(g.upTo(n)); err != nil {
				return err
			}
		}
		l.run.rest = rest
	}
	l.run.groups = nil
	if err := l.rotate(); err != nil {
		return err
	}
	l.log.Close()
	done, err := l.run.close(nil)
	if err != nil {
		return err
	}
	l.run.worker.report(done)
	return nil
}
