package orchestrator

import (
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// total is a source that knows only how many records it has.
type total struct {
	chunk.Source
	records int64
}

func (t total) Total() (int64, bool) { return t.records, t.records >= 0 }

func TestBreaker(t *testing.T) {
	failed := &wire.FirstBatch{Failed: fault.New(fault.Record, "no text"), Records: 20}
	other := &wire.FirstBatch{Failed: fault.New(fault.Record, "no name"), Records: 20}
	few := &wire.FirstBatch{Failed: fault.New(fault.Record, "no text"), Records: wire.JudgedRecords / 2}
	good := &wire.FirstBatch{}
	died := &wire.FirstBatch{Failed: fault.New(fault.Crash, "exit status 3")}
	sampled := &wire.FirstBatch{Failed: fault.New(fault.Crash, "exit status 3"), Sampled: true}
	proven := &wire.FirstBatch{Failed: fault.New(fault.Crash, "exit status 3"), Sampled: true, Proven: true}
	tried := &wire.FirstBatch{Failed: fault.New(fault.Batch, "ValueError"), Sampled: true}
	raised := &wire.FirstBatch{Failed: fault.New(fault.Batch, "KeyError: 'a'"), Records: 20}
	quoted := &wire.FirstBatch{Failed: fault.New(fault.Batch, "KeyError: 'b'"), Records: 20}
	otherwise := &wire.FirstBatch{Failed: fault.New(fault.Batch, "ValueError: no"), Records: 20}
	varied := &wire.FirstBatch{Failed: fault.New(fault.Batch, "ValueError: no"), Records: 600, Varied: true}
	tests := []struct {
		name    string
		firsts  []*wire.FirstBatch
		retired []bool
		records int64
		held    int64 // succeeded, in segments held back
		before  int64 // succeeded in an earlier run
		trips   bool
		open    bool
		output  string
	}{
		{name: "no worker reported", firsts: []*wire.FirstBatch{nil, nil}, records: 1000},
		{name: "all good", firsts: []*wire.FirstBatch{good, good}, records: 1000},
		{name: "all failed", firsts: []*wire.FirstBatch{failed, failed}, records: 1000, trips: true},
		{name: "by another message", firsts: []*wire.FirstBatch{failed, other}, records: 1000},
		{name: "one good", firsts: []*wire.FirstBatch{failed, good}, records: 1000},
		{name: "one not heard", firsts: []*wire.FirstBatch{failed, nil}, records: 1000, open: true},
		{name: "one not heard, and lost", firsts: []*wire.FirstBatch{failed, nil}, retired: []bool{false, true}, records: 1000, trips: true},
		{name: "one not heard, but something succeeded since", firsts: []*wire.FirstBatch{failed, nil}, records: 1000, held: 3},
		{name: "nothing left to save", firsts: []*wire.FirstBatch{failed, failed}, records: 20},
		{name: "too few to tell", firsts: []*wire.FirstBatch{few}, records: 1000, open: true},
		{name: "few, by many", firsts: []*wire.FirstBatch{few, few}, records: 1000, trips: true},
		{name: "too few to tell, of a stream", firsts: []*wire.FirstBatch{few}, records: -1, open: true},
		{name: "too few to tell, of a stream to a stream", firsts: []*wire.FirstBatch{few}, records: -1, output: "-"},
		{name: "raised on all", firsts: []*wire.FirstBatch{raised, quoted}, records: 1000, trips: true},
		{name: "raised on all, and little is left", firsts: []*wire.FirstBatch{raised, quoted}, records: 20, open: true},
		{name: "raised by different messages", firsts: []*wire.FirstBatch{raised, otherwise}, records: 5000, open: true},
		{name: "raised by different messages, of a stream to a stream", firsts: []*wire.FirstBatch{raised, otherwise}, records: -1, output: "-"},
		{name: "raised by different messages on very many", firsts: []*wire.FirstBatch{varied, varied}, records: 5000, trips: true},
		{name: "raised by different messages on many", firsts: []*wire.FirstBatch{varied, raised}, records: 5000, open: true},
		{name: "raised, and rejected", firsts: []*wire.FirstBatch{raised, failed}, records: 5000},
		{name: "samples failed", firsts: []*wire.FirstBatch{tried}, records: 1000, trips: true},
		{name: "samples failed, and little is left", firsts: []*wire.FirstBatch{tried}, records: 10, open: true},
		{name: "samples failed, resumed", firsts: []*wire.FirstBatch{tried}, records: 1000, before: 100},
		{name: "samples died", firsts: []*wire.FirstBatch{sampled, died}, records: 20, trips: true},
		{name: "resumed", firsts: []*wire.FirstBatch{failed, failed}, records: 1000, before: 100, trips: true},
		{name: "resumed at records that kill", firsts: []*wire.FirstBatch{sampled, sampled}, records: 1000, before: 100},
		{name: "resumed at records that kill, of which one was computed before", firsts: []*wire.FirstBatch{proven, proven}, records: 1000, before: 100, trips: true},
		{name: "resumed, and one computes it", firsts: []*wire.FirstBatch{proven, sampled}, records: 1000, before: 100},
		{name: "resumed at a batch of them", firsts: []*wire.FirstBatch{died, died}, records: 1000, before: 100},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			j := &job{prepared: &prepared{source: total{records: test.records}, plan: Plan{BatchSize: 10}}}
			for i, first := range test.firsts {
				j.slots = append(j.slots, slotState{first: first, retired: test.retired != nil && test.retired[i]})
			}
			if test.held > 0 {
				j.held = []chunk.Segment{{Tally: chunk.Tally{Counts: chunk.Counts{Records: 5, Succeeded: test.held, Failed: 5 - test.held}}}}
			}
			j.before.Succeeded = test.before
			j.config.Output = test.output
			why, open := j.breaker()
			if (why != nil) != test.trips || open != test.open {
				t.Errorf("trips %v, open %t; want %t, %t", why, open, test.trips, test.open)
			}
		})
	}
}
