package worker

// costLimit limits what a batch may cost, padding included, when records are grouped. It is
// --batch-cost until the device runs out of memory. Then the cost shrinks instead of the
// number of records, because a batch of long records says nothing about one of short ones.
type costLimit struct {
	want   int64 // --batch-cost; 0: no limit
	limit  int64 // what fit; 0: nothing has failed
	failed int64 // the highest cost that did not fit
	since  int   // good batches near the limit since its last change
}

// cost returns the limit of the next batch, 0 if there is none.
func (c *costLimit) cost() int64 {
	if c.limit > 0 {
		return c.limit
	}
	return c.want
}

// shrink records that a batch did not fit.
func (c *costLimit) shrink(cost int64) {
	if half := max(1, cost/2); c.limit == 0 || half < c.limit {
		c.limit = half
	}
	c.failed, c.since = max(c.failed, cost), 0
}

// good records that a batch fit. A small one says nothing about the limit.
func (c *costLimit) good(cost int64) {
	if c.limit == 0 || 2*cost < c.limit {
		return
	}
	if c.since++; c.since < growAfter {
		return
	}
	c.since = 0
	if c.limit += max(1, c.limit/8); c.limit >= c.failed || c.want > 0 && c.limit >= c.want {
		c.limit, c.failed = 0, 0
	}
}
