package worker

import "slices"

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
		if !l.read && !l.ended && !l.halted || l.groups.open() != nil {
			return l
		}
	}
	return nil
}

// rereads reports whether a lane has spilled records to write.
func (ls lanes) rereads() bool {
	return slices.ContainsFunc(ls, func(l *lane) bool { return l.groups.spilled() })
}

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
	g.lane.out.computed(1)
}

// hold counts memory that the group needs in addition.
func (g *group) hold(bytes int) {
	g.task.load.add(0, bytes)
	g.lane.held.add(0, bytes)
}

// advance passes the groups that are complete to the writer, in order, up to one that is
// spilled.
func (l *lane) advance() error {
	for len(l.groups) > 0 && l.groups[0].open == 0 && l.groups[0].spilled == nil {
		g := l.groups[0]
		l.groups = l.groups[1:]
		l.held.add(-g.task.load.records, -g.task.load.bytes)
		if err := l.write(g.task); err != nil {
			return err
		}
	}
	return nil
}

// over applies the stop requests to the lane. It reports whether the lane has ended.
func (l *lane) over(r *roster) bool {
	stops := l.worker.stops
	switch {
	case l.read && len(l.groups) == 0: // everything is written
		return true
	case stops.mustCut(l): // only its part ends
	case stops.mustEnd(l):
		l.halted = true
		return !r.atKernel(l)
	case stops.mustShare(l) && l.shares():
		l.share(r)
	}
	return l.ended && !r.atKernel(l) && !r.pending(l) && !l.groups.spilled()
}

// share hands back what was never sent.
func (l *lane) share(r *roster) {
	if l.ended {
		return
	}
	rest := l.unsubmitted
	if f := r.unsent(l); f != nil {
		rest = f.group.task.batch.From(f.group.task.sent[f.at])
	}
	l.handBack(rest, r.atKernel(l) || r.pending(l))
}
