package judge

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// TestTextOfALostDeviceIsAHint: text that only looks like a lost device costs the
// device if the driver confirms it, and is the records' fault once nothing else
// explains it.
func TestTextOfALostDeviceIsAHint(t *testing.T) {
	for name, test := range map[string]struct {
		doubt Doubt
		want  Cause
	}{
		"first":                             {Doubt{Devices: 1}, Unclear},
		"first, on the only device":         {Doubt{Devices: 1, Last: true}, Unclear},
		"again on the only device":          {Doubt{Devices: 1, Again: true, Last: true}, RecordsFault},
		"again, while another is to try":    {Doubt{Devices: 1, Again: true}, Unclear},
		"on a second device":                {Doubt{Devices: 2}, RecordsFault},
		"confirmed by the driver":           {Doubt{Devices: 1, Confirmed: true}, DeviceLost},
		"confirmed, on a second device":     {Doubt{Devices: 2, Confirmed: true}, DeviceLost},
		"confirmed, again, the only device": {Doubt{Devices: 1, Confirmed: true, Again: true, Last: true}, DeviceLost},
	} {
		if got := test.doubt.Cause(); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestReact(t *testing.T) {
	start := time.Now()
	tests := []struct {
		name   string
		kind   fault.Kind
		opened bool
		losses []time.Duration // ago
		want   Reaction
	}{
		{"first crash", fault.Worker, true, nil, Restart},
		{"fourth crash", fault.Worker, true, ago(1, 2, 3), Restart},
		{"fifth crash", fault.Worker, true, ago(1, 2, 3, 4), Retire},
		{"fifth crash, but the others are long ago", fault.Worker, true, ago(11, 12, 13, 14), Restart},
		{"first start fails", fault.Crash, false, nil, Restart},
		{"second start fails", fault.Timeout, false, ago(1), Retire},
		{"device lost", fault.Device, true, nil, Retire},
		{"kernel unusable", fault.Incompatible, false, nil, GiveUpJob},
		{"kernel unusable that was not", fault.Incompatible, true, nil, Restart},
		{"disk full", fault.Storage, true, nil, GiveUpJob},
		{"stopping", fault.Canceled, true, nil, Leave},
		{"a bug", fault.Unknown, true, nil, Restart},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var l Losses
			for i := len(test.losses) - 1; i >= 0; i-- {
				l.React(fault.Worker, true, start.Add(-test.losses[i]))
			}
			if got := l.React(test.kind, test.opened, start); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func ago(minutes ...int) (losses []time.Duration) {
	for _, m := range minutes {
		losses = append(losses, time.Duration(m)*time.Minute)
	}
	return losses
}

func TestBackOff(t *testing.T) {
	var l Losses
	last := time.Duration(0)
	for range 40 {
		l.React(fault.Worker, true, time.Now())
		next := l.BackOff()
		if next < last || next > maxBackOff {
			t.Fatalf("back-off %s after %s", next, last)
		}
		last = next
	}
	if last != maxBackOff {
		t.Errorf("ends at %s", last)
	}
}
