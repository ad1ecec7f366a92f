package fleet

import (
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// TestState: a job drains once, may be stopped while it drains, and never goes back. The
// first reason counts; a request has none.
func TestState(t *testing.T) {
	limit := fault.New(fault.Stopped, "--max-time")
	broken := fault.New(fault.Incompatible, "the kernel fails on everything")
	drain := func(why *fault.Error) func(*state) { return func(s *state) { s.drain(why) } }
	stop := func(why *fault.Error) func(*state) { return func(s *state) { s.stop(why) } }
	for name, test := range map[string]struct {
		steps []func(*state)
		ended bool
		why   *fault.Error
	}{
		"nothing happens":                       {nil, false, nil},
		"on request":                            {[]func(*state){drain(nil)}, true, nil},
		"a limit":                               {[]func(*state){drain(limit)}, true, limit},
		"a limit after a request":               {[]func(*state){drain(nil), drain(limit)}, true, nil},
		"a request after a limit":               {[]func(*state){drain(limit), drain(nil)}, true, limit},
		"the kernel turns out to be broken":     {[]func(*state){stop(broken)}, true, broken},
		"which is found while it drains":        {[]func(*state){drain(nil), stop(broken)}, true, broken},
		"which is found after a limit":          {[]func(*state){drain(limit), stop(broken)}, true, limit},
		"aborted while it drains":               {[]func(*state){drain(limit), stop(nil)}, true, limit},
		"draining is too late":                  {[]func(*state){stop(nil), drain(limit)}, true, nil},
		"a broken kernel does not drain either": {[]func(*state){stop(broken), drain(limit)}, true, broken},
	} {
		var s state
		for _, step := range test.steps {
			step(&s)
		}
		if s.reason() != test.why || s.running() == test.ended {
			t.Errorf("%s: running %v, because of %v", name, s.running(), s.reason())
		}
	}
}
