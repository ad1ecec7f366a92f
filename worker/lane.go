package worker

import (
	"slices"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/worker/early"
)

// lane is a chunk on its way through a concurrent kernel.
type lane struct {
	run    *chunkRun
	log    *early.Log // of its answers
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
		held.add(l.held.records, l.held.bytes)
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

// rereads reports whether a lane has spilled records to write.
func (ls lanes) rereads() bool { return slices.ContainsFunc(ls, (*lane).rereads) }

// add appends a group that was read.
func (l *lane) add(g *group) {
	task := g.task
	task.run, l.run.unsubmitted = l.run, task.batch.Rest()
	task.load = task.loadOf(0, len(task.records))
	task.load.records = len(task.batch.Records)
	task.verdicts = make([]verdict, len(task.sent))
	g.lane, g.first = l, task.batch.Records[0].Index
	l.run.groups = append(l.run.groups, g)
	l.held.add(task.load.records, task.load.bytes)
}

// answer gives a record its verdict.
func (g *group) answer(f *flight, v verdict) {
	g.task.verdicts[f.at] = v
	g.open--
	g.releaseFiles(f)
	if v.results != nil {
		for _, line := range v.results.At(0).Lines {
			g.hold(len(line))
		}
	}
	g.lane.run.out.computed(1)
}

// hold counts memory that the group needs in addition.
func (g *group) hold(bytes int) {
	g.task.load.add(0, bytes)
	g.lane.held.add(0, bytes)
}

// advance passes the groups that are complete to the writer, in order, up to one that is
// spilled.
func (l *lane) advance() error {
	for len(l.run.groups) > 0 && l.run.groups[0].open == 0 && l.run.groups[0].spilled == nil {
		g := l.run.groups[0]
		l.run.groups = l.run.groups[1:]
		l.held.add(-g.task.load.records, -g.task.load.bytes)
		if err := l.run.write(g.task); err != nil {
			return err
		}
	}
	return nil
}

// finished reports whether everything of the lane is written.
func (l *lane) finished() bool { return l.read && len(l.run.groups) == 0 }

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
		l.share(r)
	}
	return l.ended && !r.atKernel(l) && !r.pending(l) && !l.rereads()
}

// share hands back what was never sent, at once if others of its records are not finished, so that
// other workers can have it.
func (l *lane) share(r *roster) {
	if l.ended {
		return
	}
	l.ended = true
	rest := l.run.unsubmitted
	if f := r.unsent(l); f != nil {
		rest = f.group.task.batch.From(f.group.task.sent[f.at])
	}
	if rest.Records > 0 && l.run.handedBack == nil && (r.atKernel(l) || r.pending(l)) {
		l.run.reportRemainder(rest)
	} // otherwise the end of the chunk reports it
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
