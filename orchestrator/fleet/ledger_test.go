package fleet

import (
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// counted is a source of this number of records.
func counted(t *testing.T, records int64) *input.Source {
	cut := &input.Cut{Records: records, Sums: &input.Sums{}}
	source, err := input.Open([]input.Section{{Path: "in.jsonl", Cut: cut}}, input.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	return source
}

// testLedger returns the ledger of a job of 1,000 records with two slots and batches of 10.
func testLedger(t *testing.T) *ledger {
	return ledgerOf(Options{Source: counted(t, 1000), Case: judge.Case{BatchSize: 10}, Slots: []event.Slot{{}, {}}})
}

// ledgerOf is the ledger of a job whose slots have joined.
func ledgerOf(o Options) *ledger {
	r := newRoster(nil, 0, false)
	for _, slot := range o.Slots {
		r.join(slot)
	}
	return newLedger(o, r)
}

// has records what the worker of a slot has done, and what its loss would not cost.
func (l *ledger) has(slot int, counts chunk.Counts, kept int64) {
	l.progress(l.roster.members[slot], load{counts: counts, kept: kept}, wire.Progress{})
}

// answered counts the answers.
func (l *ledger) answered() int64 {
	_, answers := l.counts()
	return answers
}

// finishes takes a segment of a slot whose worker has further answers.
func (l *ledger) finishes(slot int, counts chunk.Counts, kept int64) {
	m := l.roster.members[slot]
	l.finish(m, load{kept: kept}, result{member: m, done: segmentOf(counts)}, false)
}

func segmentOf(counts chunk.Counts) wire.Done {
	return wire.Done{Segment: chunk.Segment{Tally: chunk.Tally{Counts: counts}}}
}

// TestLoggedAnswersOutliveWorkers: what a lost worker or an earlier run has logged counts, once,
// before and after another worker imports it.
func TestLoggedAnswersOutliveWorkers(t *testing.T) {
	l := testLedger(t)
	if l.has(0, chunk.Counts{Records: 10}, 0); l.answered() != 0 {
		t.Error("a kernel that computes batches has answers")
	}
	if l.roster.members[0].exited(0, nil); l.answered() != 0 {
		t.Error("a lost worker of a kernel that computes batches leaves answers")
	}
	l = ledgerOf(Options{
		Source: counted(t, 1000), Slots: []event.Slot{{}}, Before: chunk.Tally{Counts: chunk.Counts{Records: 100}}, Answers: 50,
	})
	want := func(when string, answers int64) {
		t.Helper()
		if got := l.answered(); got != answers {
			t.Errorf("%s: %d answers, want %d", when, got, answers)
		}
	}
	want("resumed", 50)
	l.has(0, chunk.Counts{Records: 10}, 30)
	want("imported in part", 40)
	l.has(0, chunk.Counts{Records: 10}, 210)
	want("computed", 200)
	l.roster.members[0].exited(0, nil)
	want("the worker is lost", 210)
	l.has(0, chunk.Counts{}, 180)
	want("another imports", 210)
	l.finishes(0, chunk.Counts{Records: 30, Succeeded: 30}, 220)
	want("a segment is finished", 220)
	l.close(215)
	want("stopped", 215)
}

// TestLedgerCountsEveryRecordOnce: records in progress, held back and released count once
// each; what a lost worker had not finished no longer counts.
func TestLedgerCountsEveryRecordOnce(t *testing.T) {
	l := testLedger(t)
	failed := chunk.Counts{Records: 20, Failed: 20}
	want := func(when string, records, held int64) {
		t.Helper()
		if done := l.done(); done.Records != records || int64(len(l.held)) != held {
			t.Errorf("%s: %d done, %d segments held", when, done.Records, len(l.held))
		}
	}
	l.has(0, chunk.Counts{Records: 10, Failed: 10}, 0)
	l.has(1, chunk.Counts{Records: 5, Failed: 5}, 0)
	want("in progress", 15, 0)
	l.roster.members[1].exited(0, nil)
	want("one worker lost", 10, 0)
	l.hear(0, &judge.First{Failed: fault.New(fault.Batch, "KeyError"), Records: 20})
	l.finishes(0, failed, 0)
	want("finished", 20, 1)
	if released, why := l.release(false, false); released != nil || why != nil {
		t.Errorf("the other worker has not reported, but %v is released, stopped by %v", released, why)
	}
	l.has(1, chunk.Counts{Records: 5, Succeeded: 5}, 0)
	l.finishes(1, chunk.Counts{Records: 30, Succeeded: 30}, 0)
	want("both finished", 50, 2)
	if released, why := l.release(false, false); len(released) != 2 || why != nil {
		t.Errorf("a record succeeded, but %d segments are released, stopped by %v", len(released), why)
	}
	want("released", 50, 0)
	if l.tally.Succeeded != 30 || l.tally.Failed != 20 {
		t.Errorf("released: %+v", l.tally)
	}
}

// TestLedgerStopsAJobThatFailsEntirely: nothing of it is released, also when the missing
// worker is lost instead of reporting.
func TestLedgerStopsAJobThatFailsEntirely(t *testing.T) {
	for name, last := range map[string]func(*ledger){
		"reports": func(l *ledger) { l.hear(1, &judge.First{Failed: fault.New(fault.Batch, "KeyError"), Records: 10}) },
		"is lost": func(l *ledger) { l.excuse(1, true) },
	} {
		l := testLedger(t)
		l.hear(0, &judge.First{Failed: fault.New(fault.Batch, "KeyError"), Records: 20})
		l.finishes(0, chunk.Counts{Records: 20, Failed: 20}, 0)
		last(l)
		if released, why := l.release(false, false); released != nil || fault.KindOf(why) != fault.Incompatible {
			t.Errorf("%s: %d segments are released, stopped by %v", name, len(released), why)
		}
	}
}
