package python

import "testing"

// Beyond a batch for each process, no more is prepared than the memory may hold.
func TestPreparedMemoryIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		begun, ready int
		want         bool
	}{
		"little is prepared":           {5, 1 << 20, true},
		"much is prepared":             {5, maxReady + 1, false},
		"much, but few batches":        {2, maxReady + 1, true},
		"everything possible is begun": {8, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			one := &preparer{child: &child{}}
			p := &pool{limit: 2, pace: newProcessPace(2), passed: maxPassed, begun: test.begun, ready: test.ready, idle: []*preparer{one}}
			p.pace.wanted = p.pace.most
			for range 20 {
				p.pending = append(p.pending, &inFlight{})
			}
			p.next()
			if (one.batch != nil) != test.want {
				t.Errorf("another batch is prepared: %v, want %v", one.batch != nil, test.want)
			}
		})
	}
}
