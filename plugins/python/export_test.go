package python

import (
	"context"
	"testing"
	"time"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// SetPreparedSize limits the memory for what prepare processes return.
func SetPreparedSize(t *testing.T, size int) {
	before := preparedSizes
	preparedSizes = []int{size}
	t.Cleanup(func() { preparedSizes = before })
}

// Describer returns a function that describes a file as Describe does, all of them with one
// interpreter, and a function that ends it.
func Describer(ctx context.Context, config plugins.Config) (describe func(file string) (plugins.Info, error), end func() error, err error) {
	k := &kernel{}
	if err := k.start(ctx, config); err != nil {
		return nil, nil, err
	}
	return func(file string) (plugins.Info, error) {
		return k.describe(ctx, resolve.PythonStep{File: file}, true)
	}, k.Close, nil
}

// SetHangAfter changes how long a forked interpreter may wait for locks.
func SetHangAfter(t *testing.T, d time.Duration) {
	after, look := hangAfter, hangLook
	hangAfter, hangLook = d, d/4
	t.Cleanup(func() { hangAfter, hangLook = after, look })
}

// TakeSeat takes a seat for a prepare process.
var TakeSeat = takeSeat
