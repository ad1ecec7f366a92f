package worker

import (
	"slices"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/worker/early"
)

// lane is a chunk on its way through the kernel. It ends when its records are written, whatever
// happens in the others: a slow record of a concurrent kernel holds up only its own chunk.
type lane struct {
	run    *chunkRun
	log    *early.Log // of its answers
	read   bool       // nothing remains to be read
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

// reading returns the lane with the next records to send, or to read, nil if there is none.
func (ls lanes) reading() *lane {
	for _, l := range ls {
		if !l.read && !l.run.ended && !l.halted || l.run.open() {
			return l
		}
	}
	return nil
}

// rereads reports whether a lane has spilled records to write.
func (ls lanes) rereads() bool { return slices.ContainsFunc(ls, (*lane).rereads) }

// add counts the memory of a group that was read.
func (l *lane) add(g *group) {
	task := g.task
	task.load = task.loadOf(0, len(task.records))
	task.load.records = len(task.batch.Records)
	task.verdicts = make([]verdict, len(task.sent))
	g.first = task.batch.Records[0].Index
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

// over applies the stop requests to the lane. It reports whether the lane has ended.
func (l *lane) over(r *roster) bool {
	stops := l.run.worker.stops
	switch {
	case l.read && len(l.run.groups) == 0: // everything is written
		return true
	case stops.mustCut(l.run): // only its part ends
	case stops.mustEnd(l.run):
		l.halted = true
		return !r.atKernel(l)
	case stops.mustShare(l.run) && l.run.shares():
		l.share(r)
	}
	return l.run.ended && !r.atKernel(l) && !r.pending(l) && !l.rereads()
}

// share hands back what was never sent.
func (l *lane) share(r *roster) {
	if l.run.ended {
		return
	}
	rest := l.run.unsubmitted
	if f := r.unsent(l); f != nil {
		rest = f.group.task.batch.From(f.group.task.sent[f.at])
	}
	l.run.handBack(rest, r.atKernel(l) || r.pending(l))
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

// close ends a lane after the records that are written together with those before them. The answers
// behind that stay in the log. The kernel must not have records of the lane.
func (l *lane) close() error {
	var err error
	if len(l.run.groups) > 0 {
		err = l.run.endGroup()
	}
	if err == nil {
		err = l.rotate()
	}
	l.log.Close()
	done, err := l.run.close(err)
	if err == nil {
		l.run.worker.report(done)
	}
	return err
}
