package worker

import "time"

// limits is how long the kernel may take for a batch before it is taken to hang.
// It is a value without a clock: what good batches have taken goes in, limits come
// out.
//
// A user who sets --timeout gets that. Without, it is worked out, once enough good
// batches are known: a record that hangs should not cost the whole default at
// every step of the search for it. Three rules keep slow but honest kernels alive:
//
//   - A batch may take patience times as long as the slowest good one, more if it
//     is larger than those were, and at least `least`. Slower than that by
//     chance, it is not lost: it is searched, and its pieces are good.
//   - The first batch of a process may compile and load: it is measured by other
//     first batches, and never teaches what the others take.
//   - Only a record alone is ever marked, and it gets all the time of a batch.
//
// What a record that hangs costs at most, in a batch of 1,024 (in quarters: 256,
// 64, 16, 4, 1): the limit of the batch, four times that of a piece, that of a
// record alone, five restarts, and up to fifteen good pieces. With batches of up
// to a second, first ones of up to five and a model that loads in 20 s that is
// 60 + 4×15 + 60 + 5×20 + 15×1 s = 4 min 55 s; with an ordinary kernel, 60 + 4×10 + 60 s.
type limits struct {
	timeout time.Duration // --timeout
	open    time.Duration // --open-timeout
	// least is the least that a batch gets without --timeout; 0 with it.
	least time.Duration

	warm    time.Duration // the slowest good batch, without the first ones of processes
	cold    time.Duration // the slowest good batch that was a process's first
	batches int           // good ones, without the first ones
	most    load          // of the largest of them
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
	// A piece gets less in a search, where an error costs a few more pieces and no
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
	limit := l.timeout
	if l.least > 0 && l.batches >= enoughBatches {
		limit = min(l.timeout, max(l.least, patience*l.scaled(of)))
	}
	switch {
	case !first:
		return limit
	case l.cold == 0: // frameworks compile and cache then
		return max(l.open, l.timeout)
	}
	return max(limit, l.least, firstPatience*l.cold)
}

// scaled is the slowest batch's time for one that may be larger than all were.
func (l *limits) scaled(of load) time.Duration {
	scale := 1.0
	if l.most.records > 0 && l.most.bytes > 0 {
		scale = max(scale, float64(of.records)/float64(l.most.records), float64(of.bytes)/float64(l.most.bytes))
	}
	return min(l.timeout, time.Duration(scale*float64(l.warm))) // or patience times it would be too much for a Duration
}

// piece is how long a piece of a batch may take while a bad record is searched in
// it, if it is more than that record.
func (l *limits) piece(of load, first bool) time.Duration {
	limit := min(l.batch(of, first), max(l.timeout, firstPatience*l.cold))
	if l.cold == 0 {
		return limit // no good batch is known
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
