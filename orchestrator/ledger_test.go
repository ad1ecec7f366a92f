package orchestrator

import (
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
)

// counted is a source that knows only how many records it has.
type counted struct {
	input.Source
	records int64
}

func (c counted) Total() (int64, bool) { return c.records, c.records >= 0 }
func (c counted) Blank() int64         { return 0 }

// testLedger is that of a job of 1,000 records with two slots and batches of 10.
func testLedger() *ledger {
	p := &prepared{source: counted{records: 1000}, plan: Plan{BatchSize: 10, Slots: []Slot{{Number: 0}, {Number: 1}}}}
	return newLedger(p, "", p.created)
}

func segmentOf(counts chunk.Counts) wire.Done {
	return wire.Done{Segment: chunk.Segment{Tally: chunk.Tally{Counts: counts}}}
}

// TestLoggedAnswersOutliveWorkers: what a lost worker or an earlier run has logged counts, once,
// before and after another worker imports it.
func TestLoggedAnswersOutliveWorkers(t *testing.T) {
	l := testLedger()
	if l.progress(0, chunk.Counts{Records: 10}, 20, nil); l.answered() != 0 {
		t.Error("a kernel that computes batches has answers")
	}
	l = testLedger()
	l.report.Concurrency = 8
	l.report.Resumed, l.report.ResumedAnswers, l.reached = 100, 50, 150
	l.tally.Records = 100
	want := func(when string, answers int64) {
		t.Helper()
		if s := l.snapshot(); s.Answers != answers || s.Rate < 0 {
			t.Errorf("%s: %d answers (%g/s), want %d", when, s.Answers, s.Rate, answers)
		}
	}
	want("resumed", 50)
	l.progress(0, chunk.Counts{Records: 10}, 20, nil)
	want("imported in part", 40)
	l.progress(0, chunk.Counts{Records: 10}, 200, nil)
	want("computed", 200)
	l.withdraw(0)
	want("the worker is lost", 210)
	l.progress(0, chunk.Counts{}, 180, nil)
	want("another imports", 210)
	l.finish(0, task{}, segmentOf(chunk.Counts{Records: 30, Succeeded: 30}), chunk.Counts{}, 220)
	want("a segment is finished", 220)
	l.close(nil, 0, false, 215)
	want("stopped", 215)
}

// TestLedgerCountsEveryRecordOnce: records in progress, held back and released count once
// each; what a lost worker had not finished no longer counts.
func TestLedgerCountsEveryRecordOnce(t *testing.T) {
	l := testLedger()
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
	if report := l.close(nil, 0, false, 0); report.Succeeded != 30 || report.Failed != 20 || report.Pending != 950 {
		t.Errorf("report: %+v", report)
	}
}

// TestLedgerStopsAJobThatFailsEntirely: nothing of it is released, also when the missing
// worker is lost instead of reporting.
func TestLedgerStopsAJobThatFailsEntirely(t *testing.T) {
	for name, last := range map[string]func(*ledger){
		"reports": func(l *ledger) { l.hear(1, &judge.First{Failed: fault.New(fault.Batch, "KeyError"), Records: 10}) },
		"is lost": func(l *ledger) { l.excuse(1, true) },
	} {
		l := testLedger()
		l.hear(0, &judge.First{Failed: fault.New(fault.Batch, "KeyError"), Records: 20})
		l.finish(0, task{}, segmentOf(chunk.Counts{Records: 20, Failed: 20}), chunk.Counts{}, 0)
		last(l)
		if released, why := l.release(false, false); released != nil || fault.KindOf(why) != fault.Incompatible {
			t.Errorf("%s: %d segments are released, stopped by %v", name, len(released), why)
		}
	}
}

// TestLedgerOfAnUnreadOutput: only what was appended counts.
func TestLedgerOfAnUnreadOutput(t *testing.T) {
	l := testLedger()
	l.commit(chunk.Tally{Counts: chunk.Counts{Records: 30, Succeeded: 30}})
	l.setAppended(chunk.Tally{Counts: chunk.Counts{Records: 10, Succeeded: 10}})
	if report := l.close(nil, 0, true, 0); report.Succeeded != 10 || report.Pending != 990 {
		t.Errorf("report: %+v", report)
	}
}
