// Package echo is the kernel that returns every record unchanged. It is the smallest
// complete kernel, and useful for trying out a file, a machine or a pipeline without
// computing anything.
package echo

import (
	"context"

	"github.com/gpurun/gpurun/plugins"
)

// New returns the kernel.
func New() plugins.Kernel { return kernel{} }

type kernel struct{ plugins.Base }

// Describe rejects a configuration: there is nothing to configure, and a user who passes
// one expects an effect.
func (kernel) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	// Without any computation, the cost is per batch: use larger ones than usual.
	return plugins.Info{Name: "echo", BatchSize: 512}, config.Decode(&struct{}{})
}

func (kernel) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		results.Unchanged(i)
	}
	return nil
}
