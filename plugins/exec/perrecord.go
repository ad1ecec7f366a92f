package exec

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

const (
	// ownCrashes is how often a program must have crashed by itself on a record before
	// the record is blamed: the first time others ran beside it.
	ownCrashes = 2
	// foreignKills is the same for signals from outside, which a record brings upon its
	// program only by its need for memory; the pauses between the attempts double.
	foreignKills     = 8
	foreignKillPause = 50 * time.Millisecond
)

// perRecord runs one process for each record, as many at a time as the worker
// has cores. A program that fails costs its record alone, unless it was not the
// record's fault: the device is lost, or its memory did not hold so many programs
// at a time, and a smaller batch has fewer. A program that a signal ended runs again,
// alone.
func (k *kernel) perRecord(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	outcomes := make([]outcome, batch.Len())
	total := new(atomic.Int64)
	var group errgroup.Group
	group.SetLimit(k.threads)
	for i := range batch.Len() {
		group.Go(func() error {
			if ctx.Err() == nil {
				outcomes[i] = k.one(batch.Record(i), total)
			}
			return nil
		})
	}
	_ = group.Wait()
	for i := range outcomes {
		outcomes[i] = k.untilBlamed(ctx, batch.Record(i), outcomes[i], total)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, o := range outcomes {
		if kind := fault.KindOf(o.err); kind == fault.Device || kind == fault.OOM {
			return o.err
		}
		if errors.Is(o.err, errTooMuch) && batch.Len() > 1 {
			return o.err // the batch is; a smaller one may be not
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

// untilBlamed runs a program that crashed on a record again, alone, until it is certain
// whose fault that is.
func (k *kernel) untilBlamed(ctx context.Context, record []byte, o outcome, total *atomic.Int64) outcome {
	own, foreign := 0, 0
	for fault.KindOf(o.err) == fault.Crash && ctx.Err() == nil {
		var killed *killedError
		if errors.As(o.err, &killed) && killed.exit.Foreign() {
			foreign++
		} else {
			own++
		}
		if own == ownCrashes || foreign == foreignKills {
			break
		}
		logf("%s; it is tried again, alone", strings.TrimPrefix(o.err.Error(), "exec: "))
		if foreign > 0 {
			pause(ctx, foreignKillPause<<(foreign-1))
		}
		o = k.one(record, total)
	}
	return o
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

type outcome struct {
	lines [][]byte
	err   error
}

func (k *kernel) one(record []byte, total *atomic.Int64) outcome {
	p, err := startProgram(k.config)
	if err != nil {
		return outcome{err: err}
	}
	defer p.kill()
	all, err := p.collect(plugins.NewBatch([][]byte{record}), func(lines [][]byte) error {
		return p.measure(lines[len(lines)-1], total)
	})
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
