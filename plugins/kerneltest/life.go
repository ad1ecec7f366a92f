package kerneltest

import (
	"reflect"

	"github.com/gpurun/gpurun/plugins"
)

// maxInFlight is the limit of plugins.Info.InFlight.
const maxInFlight = 64

func checkDescribe(t trial) {
	defer t.kernel.Close() // Describe may have started something that Open would use
	first := t.describe()
	for range 2 {
		if info := t.describe(); !reflect.DeepEqual(info, first) {
			t.fail(SameAnswer, "Describe returned %+v first, then %+v", first, info)
		}
	}
	if first.BatchSize < 0 || first.InFlight < 0 || first.InFlight > maxInFlight {
		t.fail(NoPreference, "Describe asks for batches of %d records and %d batches in flight", first.BatchSize, first.InFlight)
	}
}

func checkCloseUnopened(t trial) {
	t.describe()
	if err := t.kernel.Close(); err != nil {
		t.fail(CloseUnopened, "Close failed on a kernel that was never opened: %w", err)
	}
}

func checkOpenClose(t trial) {
	t.open()
	if err := t.kernel.Close(); err != nil {
		t.fail(CloseQuietly, "Close failed: %w", err)
	}
}

func checkCloseTwice(t trial) {
	checkOpenClose(t)
	// An error is fine; the session catches a panic or a hang.
	_ = t.kernel.Close()
}

func (t trial) describe() plugins.Info {
	info, err := t.kernel.Describe(t.ctx, t.Config)
	if err != nil {
		t.refuse(NeedsConfig, "Describe failed: %w", err)
	}
	return info
}

// open prepares the kernel as a worker does before the first batch.
func (t trial) open() {
	t.describe()
	if err := t.kernel.Open(t.ctx, t.Device, t.Config); err != nil {
		t.refuse(NeedsDevice, "Open failed on %s: %w", t.Device.Name, err)
	}
}
