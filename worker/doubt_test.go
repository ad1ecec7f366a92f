package worker

import "testing"

// TestBlamed: what reads like a lost device is the record's fault if a good record is
// computed, the device's if that fails too, and for the orchestrator to decide otherwise.
func TestBlamed(t *testing.T) {
	for _, test := range []struct {
		control control
		asked   bool
		want    culprit
	}{
		{controlComputes, false, theRecord},
		{controlComputes, true, theRecord},
		{controlFails, false, theDevice},
		{controlFails, true, theDevice},
		{controlUnknown, false, undecided},
		{controlUnknown, true, theRecord},
	} {
		if got := blamed(test.control, test.asked); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}
