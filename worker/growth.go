package worker

import "time"

// growth finds the batch size for a kernel with a cost for each batch, such as the start of a
// program: large enough that this cost is at most a twentieth of a batch's time. A batch of n
// records takes cost + n × each, and batches of two sizes reveal both. Sizes only grow. Like
// the tuner, it does not read a clock: durations go in, sizes come out.
type growth struct {
	size    int
	most    time.Duration // how long a batch may take
	current timing        // of the batches of the current size
	before  timing        // of those of the size before
	settled bool          // the size is large enough, or may not grow
}

// timing is the fastest batch of one size: whatever else the machine does only adds to it.
type timing struct {
	records int
	took    time.Duration
}

const (
	// growthShare is the part of a batch's time that its cost may take, as 1/n. Sizes aim at
	// a little less, because both figures are estimates.
	growthShare = 20
	growthAim   = 25
	// growthStep is by how much a batch may be larger than any before: records differ.
	growthStep = 16
	// growthBlind is how long the first enlarged batch should take at most; only one size is
	// known by then.
	growthBlind = time.Second
	// maxGrown and maxGrownTime bound a batch, which a stop must wait for or discard.
	maxGrown     = 1 << 18
	maxGrownTime = 5 * time.Minute
)

// newGrowth returns a growth from a size. timeout is the time limit of a batch, 0 if it follows
// from earlier batches.
func newGrowth(size int, timeout time.Duration) *growth {
	g := &growth{size: size, most: maxGrownTime}
	if timeout > 0 {
		g.most = min(g.most, timeout/4)
	}
	return g
}

// good records a batch of n records.
func (g *growth) good(n int, took time.Duration) {
	if 2*n < g.size || 4*n <= 5*g.before.records || took <= 0 { // read before the size grew, or the end of a chunk
		return
	}
	if g.current.records == 0 || g.current.took*time.Duration(n) > took*time.Duration(g.current.records) {
		g.current = timing{n, took}
	}
	fits := float64(g.current.records) * float64(g.most) / float64(g.current.took)
	next := min(g.next(), maxGrown, int(min(fits, maxGrown)))
	if g.settled = next < 2*g.current.records; !g.settled {
		g.before, g.current, g.size = g.current, timing{}, next
	}
}

// next returns the size that the batches so far suggest.
func (g *growth) next() int {
	now, before := g.current, g.before
	if before.records == 0 {
		return now.records * min(growthStep, max(2, int(growthBlind/now.took)))
	}
	each := float64(now.took-before.took) / float64(now.records-before.records)
	cost := float64(before.took) - each*float64(before.records)
	switch {
	case growthShare*cost <= float64(now.took):
		return now.records
	case each <= 0:
		return now.records * growthStep
	}
	return min(max(2*now.records, int((growthAim-1)*cost/each)), now.records*growthStep)
}
