package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestStoppedByContext: the error contains the cause with which the context was
// canceled, whenever that was.
func TestStoppedByContext(t *testing.T) {
	t.Parallel()
	mine := errors.New("enough")
	for name, end := range map[string]struct {
		context func() (context.Context, context.CancelFunc)
		want    []error
	}{
		"before": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		}, []error{context.Canceled}},
		"deadline": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), time.Second)
		}, []error{context.DeadlineExceeded}},
		"own cause": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(time.Second, func() { cancel(mine) })
			return ctx, func() { cancel(nil) }
		}, []error{context.Canceled, mine}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := end.context()
			defer cancel()
			d := newJobDir(t, numbered(2000))
			config := d.config("exec:while read line; do sleep 0.1; echo \"$line\"; done")
			config.Batching.Size = 1
			_, err := orchestrator.Run(ctx, config)
			if fault.KindOf(err) != fault.Canceled {
				t.Fatalf("error %v is a fault of kind %s", err, fault.KindOf(err))
			}
			for _, want := range end.want {
				if !errors.Is(err, want) {
					t.Errorf("%v is not in %q", want, err)
				}
			}
		})
	}
}

// TestStopAbandonsBatchThatHangs: a stop waits DrainTimeout for the batches in flight,
// not as long as a batch or an opening kernel may take. What is not finished is
// pending, and the next run computes it; what was finished before is kept.
func TestStopAbandonsBatchThatHangs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		at   int // the record that hangs, or kills its kernel
		do   string
		keep int64
	}{
		"first batch":        {0, "hang", 0},
		"later batch":        {40, "hang", 40},
		"opening once again": {40, "die, then hang", 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := slices.Collect(strings.Lines(numbered(80)))
			lines[test.at] = fmt.Sprintf("{\"do\":%q}\n", test.do)
			d := newJobDir(t, strings.Join(lines, ""))
			c := d.config("test-hangs")
			c.Devices.GPUs, c.Batching.Size, c.Batching.ChunksPerGPU, c.Resume.DrainTimeout = "cpu:1", 4, 1, 300*time.Millisecond
			c.Kernel.Config = fmt.Appendf(nil, "{\"Dir\":%q}", d.path)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			go func() {
				for !exists(d.join("hangs")) && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
			report, err := runContext(t, ctx, c)
			wantFault(t, err, fault.Canceled)
			// A batch in flight with the one that killed its kernel is lost with it.
			lost := test.keep - report.Succeeded
			if report.Failed > 0 || lost < 0 || lost > 0 && (test.do == "hang" || lost >= test.keep) {
				t.Errorf("report: %+v\n%s", report, d.logs())
			}
			if err := os.WriteFile(d.join("mended"), nil, 0o666); err != nil {
				t.Fatal(err)
			}
			if report := mustRun(t, d, c); report.Succeeded != 80 {
				t.Errorf("resumed: %+v", report)
			}
		})
	}
}
