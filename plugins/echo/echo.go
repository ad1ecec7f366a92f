// Package echo is the kernel that returns every record as it is: the smallest
// whole kernel, and the way to try a file, a machine or a pipeline without any
// compute.
package echo

import (
	"context"

	"github.com/gpurun/gpurun/plugins"
)

// New returns the kernel.
func New() plugins.Kernel { return kernel{} }

type kernel struct{ plugins.Base }

// Describe refuses a configuration: there is nothing to configure, and a user
// who gives one expects something to happen.
func (kernel) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	// Nothing is computed, so batches are what costs: larger ones than usual.
	return plugins.Info{Name: "echo", BatchSize: 512}, config.Decode(&struct{}{})
}

func (kernel) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		results.Unchanged(i)
	}
	return nil
}
