package minhash

import (
	"context"
	"sync"

	"github.com/gpurun/gpurun/plugins"
)

// New returns the kernel.
func New() plugins.Kernel { return &kernel{} }

type kernel struct {
	plugins.Base
	options Options
	signers []*Signer // one per thread
}

// Describe checks the configuration.
func (k *kernel) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	options, err := Parse(config)
	return plugins.Info{Name: "minhash", Inputs: []string{options.Field}, OnlyInputs: true}, err
}

// Open draws the permutations.
func (k *kernel) Open(_ context.Context, device plugins.Device, config plugins.Config) (err error) {
	if k.options, err = Parse(config); err != nil {
		return err
	}
	k.signers = []*Signer{NewSigner(k.options)}
	for len(k.signers) < device.Threads {
		k.signers = append(k.signers, k.signers[0].Clone())
	}
	return nil
}

// Process splits the records between the threads.
func (k *kernel) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	width := k.options.NumPerm
	signatures := make([]int64, batch.Len()*width)
	failures := make([]error, batch.Len())
	var threads sync.WaitGroup
	share := (batch.Len() + len(k.signers) - 1) / len(k.signers)
	for t, signer := range k.signers {
		from, to := min(t*share, batch.Len()), min((t+1)*share, batch.Len())
		threads.Go(func() {
			var text []byte
			for i := from; i < to; i++ {
				if text, failures[i] = k.options.Text(text[:0], batch, i); failures[i] == nil {
					signer.Sign(signatures[i*width:(i+1)*width], text)
				}
			}
		})
	}
	threads.Wait()
	for i, err := range failures {
		if err != nil {
			results.Fail(i, err.Error())
		}
	}
	results.Column(plugins.Int64s(k.options.Output, width, signatures))
	return nil
}
