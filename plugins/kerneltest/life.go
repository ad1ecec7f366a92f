package kerneltest

import (
	"context"
	"reflect"

	"github.com/gpurun/gpurun/plugins"
)

// maxInFlight is the limit of plugins.Info.InFlight.
const maxInFlight = 64

func checkDescribe(ctx context.Context, k plugins.Kernel, o Options) error {
	defer k.Close() // Describe may have started something that Open would use
	var first plugins.Info
	for i := range 3 {
		info, err := k.Describe(ctx, o.Config)
		if err != nil {
			return describeError(err)
		}
		if i == 0 {
			first = info
		} else if !reflect.DeepEqual(info, first) {
			return fail(SameAnswer,
				"Describe returned %+v first, then %+v", first, info)
		}
	}
	if first.BatchSize < 0 || first.InFlight < 0 || first.InFlight > maxInFlight {
		return fail(NoPreference,
			"Describe asks for batches of %d records and %d batches in flight", first.BatchSize, first.InFlight)
	}
	return nil
}

func describeError(err error) error {
	return unusable(NeedsConfig, "Describe failed: %w", err)
}

func checkCloseUnopened(ctx context.Context, k plugins.Kernel, o Options) error {
	if _, err := k.Describe(ctx, o.Config); err != nil {
		return describeError(err)
	}
	if err := k.Close(); err != nil {
		return fail(CloseUnopened,
			"Close failed on a kernel that was never opened: %w", err)
	}
	return nil
}

func checkOpenClose(ctx context.Context, k plugins.Kernel, o Options) error {
	if err := open(ctx, k, o); err != nil {
		return err
	}
	if err := k.Close(); err != nil {
		return fail(CloseQuietly, "Close failed: %w", err)
	}
	return nil
}

func checkCloseTwice(ctx context.Context, k plugins.Kernel, o Options) error {
	if err := open(ctx, k, o); err != nil {
		return err
	}
	if err := k.Close(); err != nil {
		return fail(CloseQuietly, "Close failed: %w", err)
	}
	// An error is fine; the session catches a panic or a hang.
	_ = k.Close()
	return nil
}

// open prepares the kernel as a worker does before the first batch.
func open(ctx context.Context, k plugins.Kernel, o Options) error {
	if _, err := k.Describe(ctx, o.Config); err != nil {
		return describeError(err)
	}
	if err := k.Open(ctx, o.Device, o.Config); err != nil {
		return unusable(NeedsDevice,
			"Open failed on %s: %w", o.Device.Name, err)
	}
	return nil
}
