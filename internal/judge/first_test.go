package judge

import (
	"slices"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// TestFirst: a run of failed records goes on as long as the kernel may be to blame for all
// of them, and ends for good with one success.
func TestFirst(t *testing.T) {
	rejected, missing := fault.New(fault.Record, "no text"), fault.New(fault.Record, "no name")
	raised, crashed := fault.New(fault.Batch, "KeyError: 'a'"), fault.New(fault.Crash, "exit status 3")
	gone, offline := fault.New(fault.Fetch, "HTTP 404 from a"), fault.New(fault.Fetch, "there is no host b")
	for name, test := range map[string]struct {
		before  First
		batch   []*fault.Error
		want    First
		settled bool
		matters bool
	}{
		"all rejected":                   {First{}, []*fault.Error{rejected, rejected}, First{Failed: rejected, Records: 2}, false, true},
		"one succeeds":                   {First{}, []*fault.Error{rejected, nil}, First{}, true, true},
		"one succeeds later":             {First{Failed: rejected, Records: 500}, []*fault.Error{nil}, First{}, true, true},
		"rejected for different reasons": {First{}, []*fault.Error{rejected, missing}, First{}, true, true},
		"raised and crashed":             {First{}, []*fault.Error{raised, crashed}, First{Failed: raised, Records: 2, Varied: true}, false, true},
		"raised and rejected":            {First{}, []*fault.Error{raised, rejected}, First{}, true, true},
		"the same again":                 {First{Failed: raised, Records: 16}, []*fault.Error{raised}, First{Failed: raised, Records: 17}, false, false},
		"not the same any more":          {First{Failed: raised, Records: 16}, []*fault.Error{crashed}, First{Failed: raised, Records: 17, Varied: true}, false, true},
		"enough":                         {First{Failed: raised, Records: 999}, []*fault.Error{raised}, First{Failed: raised, Records: 1000}, true, true},
		"twice as many":                  {First{Failed: raised, Records: 63}, []*fault.Error{raised}, First{Failed: raised, Records: 64}, false, true},
		"no file":                        {First{}, []*fault.Error{gone, gone}, First{Failed: gone, Records: 2}, false, true},
		"no file, for several reasons":   {First{}, []*fault.Error{gone, offline}, First{Failed: gone, Records: 2, Varied: true}, false, true},
		"still no file":                  {First{Failed: gone, Records: 1999}, []*fault.Error{gone}, First{Failed: gone, Records: 2000}, false, false},
		"a file at last":                 {First{Failed: gone, Records: 1999}, []*fault.Error{gone, nil}, First{}, true, true},
		"a file, and the kernel raises":  {First{Failed: gone, Records: 999, Varied: true}, []*fault.Error{raised, gone}, First{Failed: raised, Records: 1}, false, true},
		"raised, and a file is missing":  {First{Failed: raised, Records: 2}, []*fault.Error{gone, raised}, First{Failed: raised, Records: 3}, false, true},
	} {
		got := test.before.Extend(slices.Values(test.batch))
		if got != test.want || got.Settled() != test.settled || got.Matters(test.before) != test.matters {
			t.Errorf("%s: %+v, settled %t, matters %t", name, got, got.Settled(), got.Matters(test.before))
		}
	}
}

// TestTrial: a batch is sampled to the end only while every record fails in the same way
// and searching the batch would take very long.
func TestTrial(t *testing.T) {
	crashed, hangs := fault.New(fault.Crash, "exit status 3"), fault.New(fault.Timeout, "no response")
	raised, other := fault.New(fault.Batch, "KeyError"), fault.New(fault.Batch, "ValueError")
	for name, test := range map[string]struct {
		failure  *fault.Error
		restarts bool
		takes    time.Duration
		samples  []*fault.Error
		tried    int
		all      bool // all samples were tried
		long     bool
	}{
		"crashes":                {crashed, true, time.Second, []*fault.Error{crashed}, 8, true, false},
		"hangs":                  {hangs, true, time.Minute, []*fault.Error{hangs}, 2, true, false},
		"crashes, then raises":   {crashed, true, time.Second, []*fault.Error{crashed, raised}, 2, false, false},
		"raises quickly":         {raised, false, time.Millisecond, []*fault.Error{raised}, 1, false, false},
		"raises slowly":          {raised, false, 100 * time.Millisecond, []*fault.Error{raised}, 1, false, true},
		"raises very slowly":     {raised, false, 2 * time.Second, []*fault.Error{raised}, 16, true, true},
		"raises something else":  {raised, false, 2 * time.Second, []*fault.Error{raised, other}, 2, false, true},
		"fails in another way":   {crashed, true, time.Second, []*fault.Error{hangs}, 1, false, false},
		"runs out of memory too": {fault.New(fault.OOM, "memory"), true, time.Second, []*fault.Error{fault.New(fault.OOM, "memory")}, 16, true, false},
	} {
		trial := NewTrial(test.failure, test.restarts, 100)
		var tried []int
		all, long := true, false
		for at := range trial.Records() {
			e := test.samples[min(len(tried), len(test.samples)-1)]
			tried = append(tried, at)
			more, l := trial.Fails(e, test.takes)
			if long = long || l; !more {
				all = false
				break
			}
		}
		if len(tried) != test.tried || all != test.all || long != test.long {
			t.Errorf("%s: tried %v, all %t, long %t", name, tried, all, long)
		}
		if all && (tried[0] != 0 || tried[len(tried)-1] != 99 || !slices.IsSorted(tried)) {
			t.Errorf("%s: %v do not span the batch", name, tried)
		}
	}
}

// TestTrialProof: a record that succeeded before convicts the kernel only if it fails in the
// same way.
func TestTrialProof(t *testing.T) {
	crashed := fault.New(fault.Crash, "exit status 3")
	trial := NewTrial(crashed, true, 100)
	trial.Fails(crashed, time.Second)
	for name, test := range map[string]struct {
		proof *fault.Error
		want  bool
	}{
		"none tried":   {nil, false},
		"the same way": {fault.New(fault.Crash, "exit status 4"), true},
		"another way":  {fault.New(fault.Timeout, "no response"), false},
	} {
		if first := trial.First(test.proof); first.Proven != test.want || !first.Sampled || first.Failed != crashed {
			t.Errorf("%s: %+v", name, first)
		}
	}
}
