package judge

import (
	"slices"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

func TestVerdict(t *testing.T) {
	failed := &First{Failed: fault.New(fault.Record, "no text"), Records: 20}
	other := &First{Failed: fault.New(fault.Record, "no name"), Records: 20}
	few := &First{Failed: fault.New(fault.Record, "no text"), Records: judgedRecords / 2}
	good := &First{}
	died := &First{Failed: fault.New(fault.Crash, "exit status 3")}
	sampled := &First{Failed: fault.New(fault.Crash, "exit status 3"), Sampled: true}
	proven := &First{Failed: fault.New(fault.Crash, "exit status 3"), Sampled: true, Proven: true}
	tried := &First{Failed: fault.New(fault.Batch, "ValueError"), Sampled: true}
	raised := &First{Failed: fault.New(fault.Batch, "KeyError: 'a'"), Records: 20}
	quoted := &First{Failed: fault.New(fault.Batch, "KeyError: 'b'"), Records: 20}
	otherwise := &First{Failed: fault.New(fault.Batch, "ValueError: no"), Records: 20}
	varied := &First{Failed: fault.New(fault.Batch, "ValueError: no"), Records: 600, Varied: true}
	misplaced := &First{Failed: fault.New(fault.Fetch, "open 'a': no such file").Set("fetch-root"), Records: 20}
	missing := &First{Failed: fault.New(fault.Fetch, "HTTP 404 from a"), Records: 600}
	gone := &First{Failed: fault.New(fault.Fetch, "HTTP 404 from b"), Records: 600, Varied: true}
	offline := &First{Failed: fault.New(fault.Fetch, "the host a cannot be resolved").Signed(fault.Outage), Records: 600}
	tests := []struct {
		name    string
		firsts  []*First
		retired []bool
		records int64
		held    bool  // something succeeded, in segments held back
		before  int64 // succeeded in an earlier run
		trips   bool
		open    bool
		stream  bool
	}{
		{name: "no worker reported", firsts: []*First{nil, nil}, records: 1000},
		{name: "all good", firsts: []*First{good, good}, records: 1000},
		{name: "all failed", firsts: []*First{failed, failed}, records: 1000, trips: true},
		{name: "by another message", firsts: []*First{failed, other}, records: 1000},
		{name: "one good", firsts: []*First{failed, good}, records: 1000},
		{name: "one not heard", firsts: []*First{failed, nil}, records: 1000, open: true},
		{name: "one not heard, and lost", firsts: []*First{failed, nil}, retired: []bool{false, true}, records: 1000, trips: true},
		{name: "one not heard, but something succeeded since", firsts: []*First{failed, nil}, records: 1000, held: true},
		{name: "nothing left to save", firsts: []*First{failed, failed}, records: 20},
		{name: "too few to tell", firsts: []*First{few}, records: 1000, open: true},
		{name: "few, by many", firsts: []*First{few, few}, records: 1000, trips: true},
		{name: "too few to tell, of a stream", firsts: []*First{few}, records: -1, open: true},
		{name: "too few to tell, of a stream to a stream", firsts: []*First{few}, records: -1, stream: true},
		{name: "one not heard, of a stream to a stream", firsts: []*First{failed, nil}, records: -1, stream: true},
		{name: "raised on all", firsts: []*First{raised, quoted}, records: 1000, trips: true},
		{name: "raised on all, and little is left", firsts: []*First{raised, quoted}, records: 20, open: true},
		{name: "raised by different messages", firsts: []*First{raised, otherwise}, records: 5000, open: true},
		{name: "raised by different messages, of a stream to a stream", firsts: []*First{raised, otherwise}, records: -1, stream: true},
		{name: "raised by different messages on very many", firsts: []*First{varied, varied}, records: 5000, trips: true},
		{name: "raised by different messages on many", firsts: []*First{varied, raised}, records: 5000, open: true},
		{name: "raised, and rejected", firsts: []*First{raised, failed}, records: 5000},
		{name: "samples failed", firsts: []*First{tried}, records: 1000, trips: true},
		{name: "samples failed, and little is left", firsts: []*First{tried}, records: 10, open: true},
		{name: "samples failed, resumed", firsts: []*First{tried}, records: 1000, before: 100},
		{name: "samples died", firsts: []*First{sampled, died}, records: 20, trips: true},
		{name: "resumed", firsts: []*First{failed, failed}, records: 1000, before: 100, trips: true},
		{name: "resumed at records that kill", firsts: []*First{sampled, sampled}, records: 1000, before: 100},
		{name: "resumed at records that kill, of which one was computed before", firsts: []*First{proven, proven}, records: 1000, before: 100, trips: true},
		{name: "resumed, and one computes it", firsts: []*First{proven, sampled}, records: 1000, before: 100},
		{name: "resumed at a batch of them", firsts: []*First{died, died}, records: 1000, before: 100},
		{name: "files in another folder", firsts: []*First{misplaced, misplaced}, records: 1000, trips: true},
		{name: "files in another folder, and little is left", firsts: []*First{misplaced, misplaced}, records: 20, trips: true},
		{name: "missing files", firsts: []*First{missing, missing}, records: 5000, trips: true},
		{name: "missing files of several hosts", firsts: []*First{missing, gone}, records: 5000, trips: true},
		{name: "missing files, but few", firsts: []*First{missing}, records: 5000, open: true},
		{name: "missing files, and one was fetched", firsts: []*First{missing, good}, records: 5000},
		{name: "missing files, and the kernel rejects others", firsts: []*First{missing, raised}, records: 5000, trips: true},
		{name: "resumed where files are missing", firsts: []*First{missing, missing}, records: 5000, before: 100},
		{name: "resumed in another folder", firsts: []*First{misplaced, misplaced}, records: 5000, before: 100},
		{name: "resumed without a network", firsts: []*First{offline, offline}, records: 5000, before: 100, trips: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := Case{Before: chunk.Counts{Succeeded: test.before}, BatchSize: 10, Streamed: test.stream}
			c.Await(len(test.firsts))
			for i, first := range test.firsts {
				c.Hear(i, first)
				c.Excuse(i, test.retired != nil && test.retired[i])
			}
			why, open := c.Verdict(test.held, test.records)
			if (why != nil) != test.trips || open != test.open {
				t.Errorf("trips %v, open %t; want %t, %t", why, open, test.trips, test.open)
			}
		})
	}
}

// TestFinal: a job of which every record failed with the kernel's one message fails; a few
// rejected records are results.
func TestFinal(t *testing.T) {
	tally := func(records int64, failures ...chunk.Tally) (all chunk.Tally) {
		all.Counts = chunk.Counts{Records: records, Succeeded: records - int64(len(failures)), Failed: int64(len(failures))}
		for _, f := range failures {
			all.Add(f)
		}
		return all
	}
	raised := chunk.FailureTally("batch", chunk.KindStats{Example: "KeyError: 'a'", Detail: "a traceback", Line: 1})
	other := chunk.FailureTally("batch", chunk.KindStats{Example: "ValueError", Line: 2})
	rejected := chunk.FailureTally("record", chunk.KindStats{Example: "no text", Detail: "a traceback", Line: 1})
	many := func(n int, failures ...chunk.Tally) (all chunk.Tally) {
		return tally(int64(n), slices.Collect(func(yield func(chunk.Tally) bool) {
			for i := range n {
				if !yield(failures[i%len(failures)]) {
					return
				}
			}
		})...)
	}
	missing := chunk.FailureTally("fetch", chunk.KindStats{Example: "HTTP 404 from a", Detail: "a traceback", Line: 1})
	gone := chunk.FailureTally("fetch", chunk.KindStats{Example: "there is no host b", Detail: "a traceback", Line: 2})
	misplaced := Case{workers: []witness{{first: &First{Failed: fault.New(fault.Fetch, "open").Set("fetch-root"), Records: 2}}}}
	broken := chunk.FailureTally("record", chunk.KindStats{Example: "line 7: not valid UTF-8", Detail: "a traceback", Line: 2})
	rejecting := Case{workers: []witness{{first: &First{Failed: fault.New(fault.Record, "no text").WithDetail("a traceback"), Records: 15}}, {}}}
	lacking := rejecting
	lacking.Lacks = func() string { return "; the records have id" }
	kept := Case{workers: []witness{{first: &First{}}, {}}}
	for name, test := range map[string]struct {
		kernel Case
		all    chunk.Tally
		total  int64
		want   bool
	}{
		"all raised":                {Case{}, tally(2, raised, raised), 2, true},
		"all but one":               {Case{}, tally(3, raised, raised), 3, false},
		"a single record":           {Case{}, tally(1, raised), 1, false},
		"different messages":        {Case{}, tally(2, raised, other), 2, false},
		"few rejected":              {rejecting, many(15, rejected), 15, false},
		"all rejected":              {rejecting, many(16, rejected), 16, true},
		"a member is missing":       {lacking, tally(2, rejected, rejected), 2, true},
		"all but a broken row":      {rejecting, many(20, append(slices.Repeat([]chunk.Tally{rejected}, 19), broken)...), 20, true},
		"many broken rows":          {rejecting, many(20, rejected, broken), 20, false},
		"rejected differently":      {Case{}, many(16, rejected), 16, false},
		"not all processed":         {Case{}, tally(2, raised, raised), 3, false},
		"a stream without end":      {Case{}, tally(2, raised, raised), -1, false},
		"a retry":                   {Case{Exempt: true}, tally(2, raised, raised), 2, false},
		"no file":                   {Case{}, many(16, missing, gone), 16, true},
		"no file of a few":          {Case{}, many(15, missing, gone), 15, false},
		"no file in this folder":    {misplaced, many(2, missing), 2, true},
		"no file but one":           {Case{}, many(16, append(slices.Repeat([]chunk.Tally{missing}, 15), rejected)...), 16, false},
		"it worked for another job": {kept, tally(2, raised, raised), 2, false},
		"an earlier run did some":   {Case{Before: chunk.Counts{Records: 1, Failed: 1}}, tally(2, raised, raised), 2, false},
	} {
		why := test.kernel.Final(test.all, test.total)
		if (why != nil) != test.want || why != nil && why.Detail != "a traceback" {
			t.Errorf("%s: %v", name, why)
		}
	}
}
