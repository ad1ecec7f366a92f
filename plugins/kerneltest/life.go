package kerneltest

import (
	"context"
	"reflect"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// describeLimit is what cheap means: the plan asks every kernel of a job, and a
// person waits for it.
const describeLimit = 5 * time.Second

// maxInFlight is the most that plugins.Info.InFlight can ask for.
const maxInFlight = 64

func checkDescribe(ctx context.Context, k plugins.Kernel, o Options) error {
	defer k.Close() // it may keep for Open what it needed to describe itself
	var first plugins.Info
	for i := range 3 {
		start := time.Now()
		info, err := k.Describe(ctx, o.Config)
		if err != nil {
			return describeError(err)
		}
		if took := time.Since(start); took > describeLimit {
			return fail("It is asked at plan time, without a device: load models and import frameworks in Open.",
				"Describe took %s", took.Round(time.Millisecond))
		}
		if i == 0 {
			first = info
		} else if !reflect.DeepEqual(info, first) {
			return fail("It may be asked any number of times: let the answer depend on the configuration alone.",
				"Describe said %+v first, and then %+v", first, info)
		}
	}
	if first.BatchSize < 0 || first.InFlight < 0 || first.InFlight > maxInFlight {
		return fail("Leave a wish at 0 if there is none; InFlight is 64 at most.",
			"Describe wishes for batches of %d records and %d batches in flight", first.BatchSize, first.InFlight)
	}
	return nil
}

func describeError(err error) error {
	return unusable("If the kernel needs a configuration, give one in Options.Config."+detail(err), "Describe failed: %w", err)
}

func checkCloseUnopened(ctx context.Context, k plugins.Kernel, o Options) error {
	if _, err := k.Describe(ctx, o.Config); err != nil {
		return describeError(err)
	}
	if err := k.Close(); err != nil {
		return fail("A plan describes a kernel and closes it without opening: let Close do nothing then.",
			"Close failed on a kernel that was never opened: %w", err)
	}
	return nil
}

func checkOpenClose(ctx context.Context, k plugins.Kernel, o Options) error {
	if err := open(ctx, k, o); err != nil {
		return err
	}
	if err := k.Close(); err != nil {
		return fail("Return an error only for what a user must know; it stands in the log.", "Close failed: %w", err)
	}
	return nil
}

func checkCloseTwice(ctx context.Context, k plugins.Kernel, o Options) error {
	if err := open(ctx, k, o); err != nil {
		return err
	}
	if err := k.Close(); err != nil {
		return fail("Return an error only for what a user must know; it stands in the log.", "Close failed: %w", err)
	}
	// It may say that it is closed; a panic or a hang is found by the session.
	_ = k.Close()
	return nil
}

// open does what a worker does before the first batch.
func open(ctx context.Context, k plugins.Kernel, o Options) error {
	if _, err := k.Describe(ctx, o.Config); err != nil {
		return describeError(err)
	}
	if err := k.Open(ctx, o.Device, o.Config); err != nil {
		return unusable("If the kernel needs another device or configuration, give them in Options.Device and Options.Config."+detail(err),
			"Open failed on %s: %w", o.Device.Name, err)
	}
	return nil
}
