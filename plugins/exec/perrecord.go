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
	// ownCrashes is how often a program must crash by itself on a record before the
	// record is blamed: during the first crash, other programs ran in parallel.
	ownCrashes = 2
	// foreignKills is the same for signals from outside, which a record can provoke only
	// by using too much memory. The pauses between attempts double.
	foreignKills     = 8
	foreignKillPause = 50 * time.Millisecond
)

// perRecord runs one process per record, with as many in parallel as the worker has
// cores. A failing program fails only its record, unless the record is not at fault: the
// device is lost, or its memory does not hold that many programs, which a smaller batch
// fixes. A program killed by a signal is retried alone.
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
			return o.err // a smaller batch may fit
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

// untilBlamed retries a record whose program crashed, alone, until it is clear whether
// the record is at fault.
func (k *kernel) untilBlamed(ctx context.Context, record []byte, o outcome, total *atomic.Int64) outcome {
	own, foreign := 0, 0
	for fault.KindOf(o.err) == fault.Crash && ctx.Err() == nil {
		if killed, ok := errors.AsType[*killedError](o.err); ok && killed.exit.Foreign() {
			foreign++
		} else {
			own++
		}
		if own == ownCrashes || foreign == foreignKills {
			break
		}
		logf("%s; retrying the record alone", strings.TrimPrefix(o.err.Error(), "exec: "))
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
	all, err := p.collect(nil, p.feed(plugins.NewBatch([][]byte{record}), true), func(lines [][]byte) error {
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
