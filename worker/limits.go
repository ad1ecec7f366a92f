package worker

import (
	"math"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

// limits is how long the kernel may take for a batch before it is taken to hang.
// It is a value without a clock: what good batches have taken goes in, limits come
// out.
//
// With --timeout every batch gets that, the first one too. Without, the limit follows
// from the batches that were good: a record that hangs should not cost a fixed, long
// wait at every step of the search for it, and a kernel whose batches take minutes must
// not be killed for that. Three rules keep slow but honest kernels alive:
//
//   - A batch may take patience times as long as the slowest good one, more if it
//     is larger than those were, and at least `least`; there is no upper bound. As long
//     as few batches are known, the first ones of processes count too, and it gets at
//     least `early`. Slower than that by chance, it is not lost: it is searched, and
//     its pieces are good.
//   - The first batch of a process may compile and load: it is measured by other
//     first batches, and before one is known it gets as long as opening the kernel.
//   - Only a record alone is ever marked, and it gets all the time of a batch.
//
// What a record that hangs costs at most, in a batch of 1,024 (in quarters: 256,
// 64, 16, 4, 1): the limit of the batch, four times that of a piece, that of a
// record alone, five restarts, and up to fifteen good pieces. With batches of up
// to a second, first ones of up to five and a model that loads in 20 s that is
// 60 + 4×15 + 60 + 5×20 + 15×1 s = 4 min 55 s; with an ordinary kernel, 60 + 4×10 + 60 s.
type limits struct {
	timeout time.Duration // --timeout; 0: it follows from the good batches
	open    time.Duration // --open-timeout
	early   time.Duration // the least that a batch gets without --timeout, as long as few are known
	least   time.Duration // the least that it gets later

	warm    time.Duration // the slowest good batch, without the first ones of processes
	cold    time.Duration // the slowest good batch that was a process's first
	batches int           // good ones, without the first ones
	most    load          // of the largest of them
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

// load is how much there is in a batch.
type load struct {
	records, bytes int
}

func loadOf(records [][]byte) load {
	l := load{records: len(records)}
	for _, record := range records {
		l.bytes += len(record)
	}
	return l
}

const (
	// enoughBatches must be known before a limit is worked out from them:
	// frameworks compile for new shapes in the first few.
	enoughBatches = 8
	// patience is how much slower than the slowest a good batch may be: ten times
	// happens (long texts, a neighbour on the device), and as much again is spared.
	patience = 20
	// firstPatience is the same for the first batch of a process.
	firstPatience = 10
	// A piece gets less in a search, where a mistake costs a few more pieces and no
	// record: a share of the least limit, or, with --timeout, leastPiece.
	pieceShare = 6
	leastPiece = 10 * time.Second
)

// good notes a batch that the kernel has computed.
func (l *limits) good(took time.Duration, of load, first bool) {
	if first {
		l.cold = max(l.cold, took, 1) // 0 is not known
		return
	}
	l.warm = max(l.warm, took)
	l.batches++
	l.most.records, l.most.bytes = max(l.most.records, of.records), max(l.most.bytes, of.bytes)
}

// batch is how long a batch may take; first: its process has done none yet.
func (l *limits) batch(of load, first bool) time.Duration {
	if l.timeout > 0 {
		return l.timeout
	}
	limit := max(l.least, multiple(patience, l.scaled(of)))
	if l.batches < enoughBatches {
		limit = max(limit, l.early, multiple(patience, l.cold))
	}
	switch {
	case !first:
		return limit
	case l.cold == 0: // frameworks compile and cache then
		return max(limit, l.open)
	}
	return max(limit, multiple(firstPatience, l.cold))
}

// scaled is the slowest batch's time for one that may be larger than all were.
func (l *limits) scaled(of load) time.Duration {
	scale := 1.0
	if l.most.records > 0 && l.most.bytes > 0 {
		scale = max(scale, float64(of.records)/float64(l.most.records), float64(of.bytes)/float64(l.most.bytes))
	}
	return multiple(scale, l.warm)
}

// multiple is d so many times, as long as a Duration can be.
func multiple[N int | float64](n N, d time.Duration) time.Duration {
	if product := float64(n) * float64(d); product < math.MaxInt64 {
		return time.Duration(product)
	}
	return math.MaxInt64
}

// piece is how long a piece of a batch may take while a bad record is searched in
// it, if it is more than that record.
func (l *limits) piece(of load, first bool) time.Duration {
	limit := l.batch(of, first)
	if l.cold == 0 { // no good batch is known
		return min(limit, max(l.timeout, l.early))
	}
	piece := max(l.leastPiece(), 2*l.warm)
	if first {
		piece = max(piece, 3*l.cold)
	}
	return min(limit, piece)
}

func (l *limits) leastPiece() time.Duration {
	if l.least == 0 {
		return leastPiece
	}
	return l.least / pieceShare
}
