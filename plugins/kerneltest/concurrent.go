package kerneltest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/process"
)

// concurrent returns the kernel if it is a concurrent one, and how many records it
// computes at a time.
func (t trial) concurrent() (plugins.Concurrent, int) {
	kernel, is := t.kernel.(plugins.Concurrent)
	n := t.describe().Concurrency
	if n == 0 || !is {
		t.skip("the kernel computes batches")
	}
	return kernel, n
}

// mostAtOnce limits how many records the checks send at a time.
const mostAtOnce = 64

func checkConcurrent(t trial) {
	kernel, n := t.concurrent()
	records := repeated(t.Records, min(n, mostAtOnce))
	together := make([]plugins.Answer, len(records))
	var group sync.WaitGroup
	for i := range records {
		group.Go(func() { together[i] = kernel.Answer(t.ctx, newBatch(records[i:i+1]).At(0)) })
	}
	group.Wait()
	var alone, second []answer
	for i := range t.Records {
		alone = append(alone, t.given(t.Records[i], kernel.Answer(t.ctx, newBatch(t.Records[i:i+1]).At(0))))
	}
	for i, a := range together {
		second = append(second, t.given(records[i], a))
	}
	t.compare(records, repeated(alone, len(records)), second, "alone", fmt.Sprintf("with %d others", len(records)-1), AnswerAlone, SeedByRecord)
}

// given returns an answer for comparison. A kernel may ask for another attempt, and may fail
// a record, but not crash.
func (t trial) given(record string, a plugins.Answer) answer {
	switch {
	case fault.KindOf(a.Err) == fault.Crash:
		t.failBatch("the record "+short(record), a.Err)
	case a.Err != nil:
		return answer{verdict: plugins.Failed, message: a.Err.Error()}
	case a.Verdict == plugins.Retry:
		return answer{verdict: plugins.Retry, message: a.Message}
	}
	return answers(a.Results())[0]
}

// giveUpTime is how long a kernel may take to give a record up.
const giveUpTime = 5 * time.Second

func checkGiveUp(t trial) {
	kernel, _ := t.concurrent()
	ctx, cancel := context.WithCancel(t.ctx)
	answered := make(chan plugins.Answer, 1)
	go func() { answered <- kernel.Answer(ctx, newBatch(t.Records[:1]).At(0)) }()
	cancel()
	select {
	case a := <-answered:
		if a.Err == process.ErrUnresponsive {
			t.fail(ObeyContext, "the kernel did not give up a record")
		}
	case <-time.After(giveUpTime):
		t.fail(ObeyContext, "the kernel did not give up a record within %s", giveUpTime)
	}
	t.samples("after it gave up a record")
}
