package view

import (
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

// course is how the job has come this far: points and moments, in memory and on disk.
type course struct {
	history  history
	timeline timeline
	disk     *disk // nil: not kept, or the job has ended
}

// begin continues the course of earlier runs in a job folder; "" keeps it in memory only.
func (c *course) begin(folder string) {
	if folder == "" || c.disk != nil {
		return
	}
	c.history, c.timeline = load(folder)
	c.history.interrupt()
	c.disk = openDisk(folder)
	c.disk.rewrite(&c.history, &c.timeline)
}

// add adds a point.
func (c *course) add(p point) {
	thinned := c.history.add(p)
	c.keep(line{Point: &p}, thinned)
}

// note adds what an event means to the timeline. After the last event nothing is kept.
func (c *course) note(event orchestrator.Event, now time.Time) {
	for _, m := range moments(event, now) {
		m = c.timeline.add(m)
		c.keep(line{Moment: &m}, false)
	}
	if _, last := event.(orchestrator.Finished); last && c.disk != nil {
		c.disk.close()
		c.disk = nil
	}
}

// keep writes a line, or all of them if the file no longer fits.
func (c *course) keep(l line, thinned bool) {
	switch d := c.disk; {
	case d == nil:
	case thinned || d.stale || d.lines >= maxLines || d.columns != len(c.history.names):
		d.rewrite(&c.history, &c.timeline)
	default:
		d.append(l)
	}
}
