package worker

import (
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/wire"
)

// follow obeys the stop requests, and ends the lanes that are over.
func (c *concurrent) follow() error {
	w := c.worker
	if w.pace.mustHandBack() {
		w.stops.endThrough(w.begun)
	}
	for i := 0; i < len(c.lanes); {
		l := c.lanes[i]
		switch {
		case c.over(l):
			if err := c.close(l); err != nil {
				return err
			}
			continue // another has taken its place
		case w.stops.mustCut(l.run):
			if err := c.cut(l); err != nil {
				return err
			}
		}
		i++
	}
	return nil
}

// over applies the stop requests to a lane. It reports whether the lane has ended.
func (c *concurrent) over(l *lane) bool {
	stops := c.worker.stops
	switch {
	case l.finished():
		return true
	case stops.mustCut(l.run): // only its part ends
	case stops.mustEnd(l.run):
		l.halted = true
		return !c.flies(l)
	case stops.mustShare(l.run) && l.run.shares():
		c.share(l)
	}
	return l.ended && !c.flies(l) && !c.returns(l) && !l.rereads()
}

// flies reports whether the kernel has records of a lane.
func (c *concurrent) flies(l *lane) bool {
	for _, f := range c.flights {
		if f.group.lane == l {
			return true
		}
	}
	return false
}

// returns reports whether records of a lane will be sent again.
func (c *concurrent) returns(l *lane) bool {
	for _, f := range c.fetching {
		if f.group.lane == l {
			return true
		}
	}
	for _, list := range [][]*flight{c.queue, c.waiting, c.ready} {
		for _, f := range list {
			if f.group.lane == l {
				return true
			}
		}
	}
	return false
}

// share hands back what was never sent, at once if records are in flight, so that other
// workers can have it.
func (c *concurrent) share(l *lane) {
	if l.ended {
		return
	}
	l.ended = true
	rest := l.unsent()
	if rest.Records == 0 || l.run.handedBack != nil || !c.flies(l) && !c.returns(l) {
		return // the end of the chunk reports it
	}
	l.run.handedBack = &rest
	c.worker.send(wire.Message{Remainder: &wire.Remainder{Chunk: l.run.id, Rest: rest, InFlight: rest.First - l.run.rest.First}})
	crash.Point("worker-handed-back")
	l.run.reader.reportReadComplete()
}

// abandon gives up the records at the kernel: the job is stopping and their drain timeout
// has expired. The next run computes those whose answers have not arrived by now.
func (c *concurrent) abandon() error {
	c.worker.log.Warn("abandoned the records in flight: the job is stopping and the drain timeout expired", "records", len(c.flights))
	c.worker.host.kill()
	c.arrived = c.landed.take(c.arrived)
	if err := c.logArrived(); err != nil {
		return err
	}
	for l, more := c.nextArrived(); more; l, more = c.nextArrived() {
		c.spend.add(l.answer)
	}
	clear(c.flights)
	for _, l := range c.lanes {
		l.halted = true
	}
	return nil
}
