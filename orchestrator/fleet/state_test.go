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
		stage stage
		why   *fault.Error
	}{
		"nothing happens":                       {nil, running, nil},
		"on request":                            {[]func(*state){drain(nil)}, draining, nil},
		"a limit":                               {[]func(*state){drain(limit)}, draining, limit},
		"a limit after a request":               {[]func(*state){drain(nil), drain(limit)}, draining, nil},
		"a request after a limit":               {[]func(*state){drain(limit), drain(nil)}, draining, limit},
		"the kernel turns out to be broken":     {[]func(*state){stop(broken)}, stopped, broken},
		"which is found while it drains":        {[]func(*state){drain(nil), stop(broken)}, stopped, broken},
		"which is found after a limit":          {[]func(*state){drain(limit), stop(broken)}, stopped, limit},
		"aborted while it drains":               {[]func(*state){drain(limit), stop(nil)}, stopped, limit},
		"draining is too late":                  {[]func(*state){stop(nil), drain(limit)}, stopped, nil},
		"a broken kernel does not drain either": {[]func(*state){stop(broken), drain(limit)}, stopped, broken},
	} {
		var s state
		for _, step := range test.steps {
			step(&s)
		}
		if s.stage != test.stage || s.reason() != test.why || s.running() != (test.stage == running) {
			t.Errorf("%s: stage %d, because of %v", name, s.stage, s.reason())
		}
	}
}
