package exec

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// perRecord runs one process for each record, as many at a time as the worker
// has cores. A program that fails costs its record alone, unless it was not the
// record's fault: the device is lost, or its memory did not hold so many programs
// at a time, and a smaller batch has fewer.
func (k *kernel) perRecord(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	outcomes := make([]outcome, batch.Len())
	var group errgroup.Group
	group.SetLimit(k.threads)
	for i := range batch.Len() {
		group.Go(func() error {
			if ctx.Err() == nil {
				outcomes[i] = k.one(batch.Record(i))
			}
			return nil
		})
	}
	_ = group.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, o := range outcomes {
		if kind := fault.KindOf(o.err); kind == fault.Device || kind == fault.OOM {
			return o.err
		}
	}
	for i, o := range outcomes {
		if o.err != nil {
			results.Fail(i, o.err.Error())
		} else {
			results.Lines(i, o.lines...)
		}
	}
	return nil
}

type outcome struct {
	lines [][]byte
	err   error
}

func (k *kernel) one(record []byte) outcome {
	p, err := startProgram(k.config)
	if err != nil {
		return outcome{err: err}
	}
	defer p.kill()
	all, err := p.collect(plugins.NewBatch([][]byte{record}))
	if err != nil {
		return outcome{err: k.classify(err)}
	}
	var lines [][]byte
	for _, line := range all {
		if strings.TrimSpace(string(line)) != "" {
			lines = append(lines, line)
		}
	}
	return outcome{lines: lines}
}
