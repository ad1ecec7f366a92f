package view

import (
	"slices"
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

// course is how the job has come this far: points and moments, in memory and on disk.
type course struct {
	history  history
	timeline timeline
	disk     *disk // nil: not kept, or the job has ended
	changed  bool  // since it was saved
}

// begin continues the course of earlier runs in a job folder; "" keeps it in memory only.
func (c *course) begin(folder string) {
	if folder == "" || c.disk != nil {
		return
	}
	c.history, c.timeline = load(folder)
	c.history.interrupt()
	c.disk = openDisk(folder)
}

// add adds a point.
func (c *course) add(p point) {
	c.history.add(p)
	c.changed = true
}

// addEvent adds what an event means to the timeline, and saves the course if it is time. After the
// last event nothing is saved.
func (c *course) addEvent(event orchestrator.Event, now time.Time) {
	for _, m := range moments(event, now) {
		c.timeline.add(m)
		c.changed = true
	}
	_, last := event.(orchestrator.Finished)
	switch d := c.disk; {
	case d == nil:
	case last:
		d.close(c.document())
		c.disk = nil
	case c.changed && now.Sub(d.saved) >= saveInterval && len(d.work) == 0: // otherwise the disk is slow
		d.work <- c.document()
		d.saved, c.changed = now, false
	}
}

// document returns a copy for the disk.
func (c *course) document() document {
	return document{c.history.interval, slices.Clone(c.history.names), slices.Clone(c.history.points), slices.Clone(c.timeline.moments)}
}
