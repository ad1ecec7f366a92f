package worker

import (
	"fmt"
	"math"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// limits decides how long the kernel may take for a batch before it counts as hung. It does
// not read a clock: the durations of good batches go in, limits come out.
//
// With --timeout every batch gets exactly that, including the first. Without it, the limit
// follows from the good batches: a record that hangs must not cost a long fixed wait at
// every step of the search, and a kernel whose batches take minutes must not be killed for
// it. Three rules keep slow but correct kernels alive:
//
//   - A batch may take patience times as long as the slowest good one, more if it
//     is larger than those were, and at least `least`; there is no upper bound. While
//     few batches are known, the first batches of processes count too, and a batch
//     gets at least `early`. A good batch that exceeds its limit is not lost: it is
//     searched, and its pieces succeed.
//   - The first batch of a process may compile and load. Its limit follows from other
//     first batches; until one is known, it gets as long as opening the kernel.
//   - Only a record alone is ever marked, and it gets the full limit of a batch.
//
// The maximum cost of one hanging record in a batch of 1,024 (in quarters: 256, 64, 16, 4,
// 1) is the limit of the batch, four times that of a piece, that of a single record, five
// restarts, and up to fifteen good pieces. With batches of up to a second, first batches of
// up to five and a model that loads in 20 s, that is 60 + 4×15 + 60 + 5×20 + 15×1 s = 4 min
// 55 s; with an ordinary kernel, 60 + 4×10 + 60 s.
type limits struct {
	timeout time.Duration // --timeout; 0: derived from the good batches
	open    time.Duration // --open-timeout
	early   time.Duration // minimum without --timeout while few batches are known
	least   time.Duration // minimum after that
	record  time.Duration // minimum without --timeout for a record of a concurrent kernel

	warm    time.Duration // the slowest good batch that was not a process's first
	cold    time.Duration // the slowest good first batch of a process
	batches int           // number of good batches, without first ones
	most    load          // the largest of them
}

func newLimits(setup wire.Setup) limits {
	l := limits{open: setup.OpenTimeout}
	if setup.LeastTimeout > 0 {
		l.early, l.least = setup.Timeout, setup.LeastTimeout
	} else {
		l.timeout = setup.Timeout
	}
	return l
}

// concurrentPatience is how many times longer than a batch a record of a concurrent kernel may
// take at least: while it hangs, it holds up no other, and a request that is cut short is paid
// for in vain.
const concurrentPatience = 10

// describe takes what the kernel says about its records.
func (l *limits) describe(info plugins.Info) {
	if info.Concurrency > 0 {
		l.record = max(info.RecordLimit(), multiple(concurrentPatience, l.least))
	}
}

// load is the size of a batch.
type load struct {
	records, bytes int
	cost           int64 // of grouped records, padding included
}

// add adds records and bytes to a load.
func (l *load) add(records, bytes int) {
	l.records += records
	l.bytes += bytes
}

const (
	// enoughBatches must be known before they set the limit: frameworks compile for new
	// shapes during the first few.
	enoughBatches = 8
	// patience is how many times slower than the slowest good batch another may be. Ten
	// times happens (long texts, a neighbor on the device); this is twice that.
	patience = 20
	// firstPatience is the same for the first batch of a process.
	firstPatience = 10
	// A piece gets less time during a search, where a mistake costs a few more pieces but
	// no record: a share of the minimum limit or, with --timeout, leastPiece.
	pieceShare = 6
	leastPiece = 10 * time.Second
)

// good records a batch that the kernel has computed.
func (l *limits) good(took time.Duration, of load, first bool) {
	if first {
		l.cold = max(l.cold, took, 1) // 0 means unknown
		return
	}
	l.warm = max(l.warm, took)
	l.batches++
	l.most.records, l.most.bytes, l.most.cost = max(l.most.records, of.records), max(l.most.bytes, of.bytes), max(l.most.cost, of.cost)
}

// batch returns how long a batch may take. first means that its process has not computed
// one yet.
func (l *limits) batch(of load, first bool) time.Duration {
	if l.timeout > 0 {
		return l.timeout
	}
	limit := max(l.least, multiple(patience, l.scaled(of)), l.record)
	if l.batches < enoughBatches {
		limit = max(limit, l.early, multiple(patience, l.cold))
	}
	switch {
	case !first:
		return limit
	case l.cold == 0: // frameworks compile and cache during the first batch
		return max(limit, l.open)
	}
	return max(limit, multiple(firstPatience, l.cold))
}

// scaled returns the slowest batch's duration, scaled up for a batch larger than any
// before.
func (l *limits) scaled(of load) time.Duration {
	scale := 1.0
	if l.most.records > 0 && l.most.bytes > 0 {
		scale = max(scale, float64(of.records)/float64(l.most.records), float64(of.bytes)/float64(l.most.bytes))
	}
	if l.most.cost > 0 {
		scale = max(scale, float64(of.cost)/float64(l.most.cost))
	}
	return multiple(scale, l.warm)
}

// multiple returns n*d, capped at the longest Duration.
func multiple[N int | float64](n N, d time.Duration) time.Duration {
	if product := float64(n) * float64(d); product < math.MaxInt64 {
		return time.Duration(product)
	}
	return math.MaxInt64
}

// piece returns how long a piece of more than one record may take during a search.
func (l *limits) piece(of load, first bool) time.Duration {
	limit := l.batch(of, first)
	if l.cold == 0 { // no good batch is known
		return min(limit, max(l.timeout, l.early))
	}
	piece := max(2*l.warm, leastPiece)
	if l.least > 0 {
		piece = max(2*l.warm, l.least/pieceShare)
	}
	if first {
		piece = max(piece, 3*l.cold)
	}
	return min(limit, piece)
}

// expired returns the failure of a batch or record that reached its limit. The message must not
// vary between runs, so the limit, which depends on earlier batches, goes into the detail.
func (l *limits) expired(verb, what string, limit time.Duration) *fault.Error {
	message := fmt.Sprintf("the kernel did not %s in time", verb)
	if l.timeout > 0 {
		message = fmt.Sprintf("the kernel did not %s within %s", verb, l.timeout)
	}
	return fault.KernelTimeout.New("%s", message).Set("timeout").
		WithDetail(fmt.Sprintf("gpurun waited %s for this %s", limit, what))
}
