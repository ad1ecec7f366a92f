package worker

import (
	"cmp"
	"math/bits"
	"slices"
)

// grouping cuts the records of a window into batches of similar cost. It is a pure value:
// costs go in, batches come out.
//
// The largest records of the first window come first. A framework then takes its largest
// block of device memory at once and reuses it, and a batch that does not fit, or hangs, is
// found before the others of its window are computed. The next window begins with the
// smallest, and so on in turn: a batch then takes about as long as the one before it, and
// what is prepared ahead of the device suffices. If each window began with the largest, the
// device would wait for those while it has computed the small ones before them in no time.
//
// The batches are cut one at a time, so that each follows the budget of its moment: that
// shrinks when device memory runs out.
type grouping struct {
	costs    []int // of every record
	sizes    []int // the bytes of every record
	order    []int // the records that are not in a batch yet, the most costly first
	smallest bool  // the smallest come first
}

// budget limits a batch.
type budget struct {
	records int
	bytes   int
	cost    int64 // the most, padding included; 0: no limit
}

func newGrouping(costs, sizes []int, smallest bool) grouping {
	g := grouping{costs: costs, sizes: sizes, order: make([]int, len(costs)), smallest: smallest}
	for i := range g.order {
		g.order[i] = i
	}
	slices.SortFunc(g.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(costs[b], costs[a]), cmp.Compare(a, b))
	})
	return g
}

// next removes the next batch and returns its records in input order. It is empty if no
// record is left.
func (g *grouping) next(limit budget) []int {
	n, size := 0, 0
	for n < min(limit.records, len(g.order)) {
		first, last := 0, n // of the batch with another record, the most costly first
		if g.smallest {
			first, last = len(g.order)-n-1, len(g.order)-n-1
		}
		size += g.sizes[g.order[last]]
		if n > 0 && (size > limit.bytes || limit.cost > 0 && n >= countFor(limit.cost, g.costs[g.order[first]])) {
			break
		}
		n++
	}
	from := 0
	if g.smallest {
		from = len(g.order) - n
	}
	batch := slices.Clone(g.order[from : from+n])
	g.order = slices.Delete(g.order, from, from+n)
	slices.Sort(batch)
	return batch
}

// countFor returns how many records of a cost fit in a limit, at least one. It rounds the
// cost up and the count down, so that batches of a few shapes repeat: libraries select a
// kernel for each new shape, which takes much longer than computing with it.
func countFor(limit int64, cost int) int {
	n := max(1, limit/int64(roundUp(cost)))
	if n >= 2*countStep {
		n -= n % countStep
	}
	return int(n)
}

// countStep is what the number of records is a multiple of, unless it is small.
const countStep = 8

// roundUp rounds a cost up to one of eight steps between two powers of two.
func roundUp(cost int) int {
	cost = max(1, cost)
	step := 1 << max(0, bits.Len(uint(cost-1))-4)
	return (cost + step - 1) / step * step
}

// only removes the records that are not wanted.
func (g *grouping) only(wanted func(i int) bool) {
	g.order = slices.DeleteFunc(g.order, func(i int) bool { return !wanted(i) })
}

// padded returns what records cost together when each is padded to the largest.
func padded(costs []int) int64 {
	if len(costs) == 0 {
		return 0
	}
	return int64(len(costs)) * int64(max(1, slices.Max(costs)))
}
