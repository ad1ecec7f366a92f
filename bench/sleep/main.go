// Command sleep is a kernel for measurements: it computes nothing, for as long as it
// is told, and can write down when its first batch came. Its second way of working,
// "copy", returns every record as new bytes, so that both directions are used.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

type config struct {
	// Milliseconds a batch.
	Milliseconds float64 `json:"ms"`
	// Stamp is a file that gets the time of the first batch, in nanoseconds.
	Stamp string `json:"stamp"`
	// Copy returns records as lines of their own.
	Copy bool `json:"copy"`
}

type kernel struct {
	plugins.Base
	config
	copies []byte
}

func (k *kernel) Describe(_ context.Context, c plugins.Config) (plugins.Info, error) {
	return plugins.Info{Name: "sleep"}, c.Decode(&k.config)
}

func (k *kernel) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	if k.Stamp != "" {
		if err := os.WriteFile(k.Stamp, fmt.Append(nil, time.Now().UnixNano()), 0o600); err != nil {
			return err
		}
		k.Stamp = ""
	}
	time.Sleep(time.Duration(k.Milliseconds * float64(time.Millisecond)))
	k.copies = k.copies[:0]
	for i := range batch.Len() {
		if k.Copy {
			start := len(k.copies)
			k.copies = append(k.copies, batch.Record(i)...)
			results.Line(i, k.copies[start:])
		} else {
			results.Unchanged(i)
		}
	}
	return nil
}

func main() { plugins.Serve(&kernel{}) }
