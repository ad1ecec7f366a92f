package orchestrator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestStoppedByContext: whoever ended the context finds that in the error, whenever it
// was.
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
			config.BatchSize = 1
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
