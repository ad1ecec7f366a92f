package kerneltest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// concurrently returns the kernel if it is a concurrent one, and how many records it
// computes at a time.
func concurrently(ctx context.Context, k plugins.Kernel, o Options) (plugins.Concurrent, int, error) {
	info, err := k.Describe(ctx, o.Config)
	if err != nil {
		return nil, 0, describeError(err)
	}
	kernel, is := k.(plugins.Concurrent)
	if info.Concurrency == 0 || !is {
		return nil, 0, skipped("the kernel computes batches")
	}
	return kernel, info.Concurrency, nil
}

// mostAtOnce limits how many records the checks send at a time.
const mostAtOnce = 64

func checkConcurrent(ctx context.Context, k plugins.Kernel, o Options) error {
	kernel, n, err := concurrently(ctx, k, o)
	if err != nil {
		return err
	}
	records := make([]string, min(n, mostAtOnce))
	for i := range records {
		records[i] = o.Records[i%len(o.Records)]
	}
	together := make([]plugins.Answer, len(records))
	var group sync.WaitGroup
	for i := range records {
		group.Go(func() { together[i] = kernel.Answer(ctx, newBatch(records[i:i+1]).At(0)) })
	}
	group.Wait()
	alone := make([]plugins.Answer, len(o.Records))
	for i := range alone {
		alone[i] = kernel.Answer(ctx, newBatch(o.Records[i:i+1]).At(0))
	}
	first, second := make([]answer, len(records)), make([]answer, len(records))
	for i := range records {
		if first[i], err = given(records[i], alone[i%len(alone)]); err != nil {
			return err
		}
		if second[i], err = given(records[i], together[i]); err != nil {
			return err
		}
	}
	return compare(o, records, first, second, "alone", fmt.Sprintf("with %d others", len(records)-1), AnswerAlone, SeedByRecord)
}

// given returns an answer for comparison. A kernel may ask for another attempt, and may fail
// a record, but not crash.
func given(record string, a plugins.Answer) (answer, error) {
	if a.Err != nil {
		if fault.KindOf(a.Err) == fault.Crash {
			return answer{}, processError("the record "+short(record), a.Err)
		}
		return answer{verdict: plugins.Failed, message: a.Err.Error()}, nil
	}
	if a.Verdict == plugins.Retry {
		return answer{verdict: plugins.Retry, message: a.Message}, nil
	}
	return answers(a.Results())[0], nil
}

// giveUpTime is how long a kernel may take to give a record up.
const giveUpTime = 5 * time.Second

func checkGiveUp(ctx context.Context, k plugins.Kernel, o Options) error {
	kernel, _, err := concurrently(ctx, k, o)
	if err != nil {
		return err
	}
	given, cancel := context.WithCancel(ctx)
	answered := make(chan plugins.Answer, 1)
	go func() { answered <- kernel.Answer(given, newBatch(o.Records[:1]).At(0)) }()
	cancel()
	select {
	case a := <-answered:
		if a.Err == plugins.ErrUnresponsive {
			return fail(ObeyContext, "the kernel did not give up a record")
		}
	case <-time.After(giveUpTime):
		return fail(ObeyContext, "the kernel did not give up a record within %s", giveUpTime)
	}
	return stillWorks(ctx, k, o, "after it gave up a record")
}
