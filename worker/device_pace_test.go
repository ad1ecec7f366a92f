package worker

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

func TestPacer(t *testing.T) {
	p := newPacer()
	if (p.share() < 1) || p.rest(time.Second) != 0 || p.mustHandBack() {
		t.Error("not at full speed at the start")
	}
	for _, test := range []struct {
		pace   wire.Pace
		slowed bool
		rest   time.Duration
		give   bool
	}{
		{wire.Pace{Share: 1}, false, 0, false},
		{wire.Pace{Share: 0.8}, true, 250 * time.Millisecond, false},
		{wire.Pace{Share: 0.5}, true, time.Second, false},
		{wire.Pace{Share: 0, HandBack: time.Hour}, true, 0, false},
		{wire.Pace{Share: 0}, true, 0, true},
	} {
		p.set(test.pace)
		if (p.share() < 1) != test.slowed || p.rest(time.Second).Round(time.Microsecond) != test.rest || p.mustHandBack() != test.give {
			t.Errorf("%+v: slowed %v, rest %s, give %v", test.pace, (p.share() < 1), p.rest(time.Second), p.mustHandBack())
		}
		select {
		case <-p.wake:
		default:
			t.Errorf("%+v woke no loop", test.pace)
		}
	}
}
