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

// testLedger is that of a job of 1,000 records with two slots and batches of 10.
func testLedger(t *testing.T) *ledger {
	return newLedger(Options{Source: counted(t, 1000), Case: judge.Case{BatchSize: 10}, Slots: []event.Slot{{Number: 0}, {Number: 1}}})
}

func segmentOf(counts chunk.Counts) wire.Done {
	return wire.Done{Segment: chunk.Segment{Tally: chunk.Tally{Counts: counts}}}
}

// TestLoggedAnswersOutliveWorkers: what a lost worker or an earlier run has logged counts, once,
// before and after another worker imports it.
func TestLoggedAnswersOutliveWorkers(t *testing.T) {
	l := testLedger(t)
	if l.progress(0, chunk.Counts{Records: 10}, 0, nil); l.answered() != 0 {
		t.Error("a kernel that computes batches has answers")
	}
	if l.withdraw(0); l.answered() != 0 {
		t.Error("a lost worker of a kernel that computes batches leaves answers")
	}
	f := &Fleet{ledger: newLedger(Options{
		Source: counted(t, 1000), Slots: []event.Slot{{}}, Before: chunk.Tally{Counts: chunk.Counts{Records: 100}}, Answers: 50,
	}), roster: &roster{}, monitor: &deviceMonitor{}}
	l = f.ledger
	want := func(when string, answers int64) {
		t.Helper()
		if got := l.answered(); got != answers {
			t.Errorf("%s: %d answers, want %d", when, got, answers)
		}
	}
	want("resumed", 50)
	l.progress(0, chunk.Counts{Records: 10}, 30, nil)
	want("imported in part", 40)
	l.progress(0, chunk.Counts{Records: 10}, 210, nil)
	want("computed", 200)
	l.withdraw(0)
	want("the worker is lost", 210)
	l.progress(0, chunk.Counts{}, 180, nil)
	want("another imports", 210)
	l.finish(0, task{}, segmentOf(chunk.Counts{Records: 30, Succeeded: 30}), chunk.Counts{}, 220)
	want("a segment is finished", 220)
	f.Close(215)
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
	l.progress(0, chunk.Counts{Records: 10, Failed: 10}, 0, nil)
	l.progress(1, chunk.Counts{Records: 5, Failed: 5}, 0, nil)
	want("in progress", 15, 0)
	l.withdraw(1)
	want("one worker lost", 10, 0)
	l.hear(0, &judge.First{Failed: fault.New(fault.Batch, "KeyError"), Records: 20})
	l.finish(0, task{}, segmentOf(failed), chunk.Counts{}, 0)
	want("finished", 20, 1)
	if released, why := l.release(false, false); released != nil || why != nil {
		t.Errorf("the other worker has not reported, but %v is released, stopped by %v", released, why)
	}
	l.progress(1, chunk.Counts{Records: 5, Succeeded: 5}, 0, nil)
	l.finish(1, task{}, segmentOf(chunk.Counts{Records: 30, Succeeded: 30}), chunk.Counts{}, 0)
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
		l.finish(0, task{}, segmentOf(chunk.Counts{Records: 20, Failed: 20}), chunk.Counts{}, 0)
		last(l)
		if released, why := l.release(false, false); released != nil || fault.KindOf(why) != fault.Incompatible {
			t.Errorf("%s: %d segments are released, stopped by %v", name, len(released), why)
		}
	}
}
