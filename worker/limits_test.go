package worker

import (
	"math"
	"testing"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

const (
	second = time.Second
	minute = time.Minute
)

// byDefault returns the limits without --timeout.
func byDefault() limits { return limits{early: 5 * minute, open: 30 * minute, least: minute} }

// experienced has seen a first batch and many others.
func experienced(l limits, cold, warm time.Duration, of load) limits {
	l.good(cold, of, true)
	for range enoughBatches {
		l.good(warm, of, false)
	}
	return l
}

var usual = load{records: 1024, bytes: 1 << 20}

// TestBatchLimit: without --timeout the limit is 20 times the slowest good batch, at least
// a minute, without an upper bound; --timeout applies to every batch, including the first.
func TestBatchLimit(t *testing.T) {
	fixed := limits{timeout: 90 * second, open: 30 * minute}
	few := byDefault()
	few.good(3*second, usual, true)
	few.good(second, usual, false)
	slowFirst := byDefault()
	slowFirst.good(8*minute, usual, true)
	patient := experienced(byDefault(), second, 5*time.Millisecond, usual)
	patient.describe(plugins.Info{Concurrency: 1, RecordTimeout: 20 * minute})
	concurrent := experienced(byDefault(), second, 5*time.Millisecond, usual)
	concurrent.describe(plugins.Info{Concurrency: 1})
	for name, test := range map[string]struct {
		limits limits
		of     load
		first  bool
		want   time.Duration
	}{
		"fast, and the kernel's own":    {patient, usual, false, 40 * minute},
		"fast, one record of many":      {concurrent, usual, false, 10 * minute},
		"nothing known":                 {byDefault(), usual, false, 5 * minute},
		"nothing known, first":          {byDefault(), usual, true, 30 * minute},
		"few known":                     {few, usual, false, 5 * minute},
		"few known, first":              {few, usual, true, 5 * minute},
		"only a first one known":        {slowFirst, usual, false, 160 * minute},
		"fast":                          {experienced(byDefault(), second, 5*time.Millisecond, usual), usual, false, minute},
		"fast, first":                   {experienced(byDefault(), second, 5*time.Millisecond, usual), usual, true, minute},
		"fast, first, that compiles":    {experienced(byDefault(), 30*second, 5*time.Millisecond, usual), usual, true, 5 * minute},
		"compiled once":                 {experienced(byDefault(), 30*second, 5*time.Millisecond, usual), usual, false, minute},
		"slow":                          {experienced(byDefault(), 6*second, 6*second, usual), usual, false, 2 * minute},
		"slower":                        {experienced(byDefault(), minute, minute, usual), usual, false, 20 * minute},
		"a language model":              {experienced(byDefault(), 8*minute, 8*minute, usual), usual, false, 160 * minute},
		"slow, and twice the records":   {experienced(byDefault(), 6*second, 6*second, usual), load{records: 2048, bytes: 1 << 20}, false, 4 * minute},
		"slow, and twice the bytes":     {experienced(byDefault(), 6*second, 6*second, usual), load{records: 1024, bytes: 2 << 20}, false, 4 * minute},
		"slow, and a thousand times it": {experienced(byDefault(), 6*second, 6*second, usual), load{records: 1024, bytes: 1000 << 20}, false, 2000 * minute},
		"slow, beyond a Duration":       {experienced(byDefault(), 6*second, 240*time.Hour, usual), load{records: 1024, bytes: 1 << 50}, false, math.MaxInt64},
		"slow, and smaller":             {experienced(byDefault(), 6*second, 6*second, usual), load{records: 1, bytes: 10}, false, 2 * minute},
		"set by the user":               {experienced(fixed, second, 5*time.Millisecond, usual), usual, false, 90 * second},
		"set by the user, first":        {experienced(fixed, second, 5*time.Millisecond, usual), usual, true, 90 * second},
		"set, and it compiles":          {experienced(fixed, minute, 5*time.Millisecond, usual), usual, true, 90 * second},
		"set, nothing known, first":     {fixed, usual, true, 90 * second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.limits.batch(test.of, test.first); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestHonestBatches: a batch ten times slower than all before it is not killed, whatever
// they took; nor is the next, ten times slower again.
func TestHonestBatches(t *testing.T) {
	for warm := time.Microsecond; warm <= time.Hour; warm = warm*3/2 + 1 {
		l := experienced(byDefault(), warm, warm, usual)
		for took := 10 * warm; took < 100*time.Hour; took *= 10 {
			if limit := l.batch(usual, false); took > limit {
				t.Errorf("batches of %s: one of %s is killed after %s", warm, took, limit)
			}
			l.good(took, usual, false)
		}
	}
}

// TestWorstHang adds up the cost of a hanging record in a batch of 1,024, with every piece
// as slow as it may be.
func TestWorstHang(t *testing.T) {
	for name, test := range map[string]struct{ cold, warm, restart time.Duration }{
		"an ordinary kernel":    {second, 50 * time.Millisecond, 2 * second},
		"a large model":         {5 * second, second, 20 * second},
		"large batches":         {5 * second, 3 * second, 8 * second},
		"that compiles for 10s": {10 * second, 50 * time.Millisecond, 2 * second},
	} {
		t.Run(name, func(t *testing.T) {
			l := experienced(byDefault(), test.cold, test.warm, usual)
			total, hangs := l.batch(usual, false), 1
			for size := 256; size >= 1; size /= 4 {
				of := load{records: size, bytes: size << 10}
				limit := l.piece(of, true)
				if size == 1 {
					limit = l.batch(of, true)
				}
				hangs++
				total += test.restart + limit + 3*test.warm
			}
			t.Logf("%s in %d steps", total, hangs)
			if total >= 5*minute {
				t.Errorf("a record that hangs is found after %s", total)
			}
		})
	}
}

// TestPieceLimit: a piece gets less time than a batch, but as much as it needs.
func TestPieceLimit(t *testing.T) {
	piece := load{records: 256, bytes: 256 << 10}
	fixed := limits{timeout: 2 * second, open: 30 * minute}
	for name, test := range map[string]struct {
		limits limits
		first  bool
		want   time.Duration
	}{
		"nothing known":        {byDefault(), true, 5 * minute},
		"fast":                 {experienced(byDefault(), second, 5*time.Millisecond, usual), true, 10 * second},
		"slow":                 {experienced(byDefault(), 20*second, 20*second, usual), false, 40 * second},
		"compiles":             {experienced(byDefault(), 10*second, second, usual), true, 30 * second},
		"compiles for minutes": {experienced(byDefault(), 3*minute, second, usual), true, 9 * minute},
		"set by the user":      {experienced(fixed, second/10, second/10, usual), true, 2 * second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.limits.piece(piece, test.first); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
