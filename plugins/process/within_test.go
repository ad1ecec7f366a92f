package process

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// A kernel in the worker's own process keeps to the contract of one that has its own: a panic
// and a time limit cost one record, and Kill ends what is being computed.
func TestWithin(t *testing.T) {
	p := Within(each{info: plugins.Info{Name: "each", Concurrency: 4, RecordTimeout: time.Hour}, answer: func(ctx context.Context, record plugins.Record) plugins.Answer {
		switch string(record.Bytes()) {
		case `"panic"`:
			panic("out of ideas")
		case `"slow"`:
			<-ctx.Done()
			return plugins.RetryAfter(0, "given up")
		case `"limit"`:
			_, has := ctx.Deadline()
			return plugins.Replaced(fmt.Append(nil, has))
		case `"bad"`:
			return plugins.Rejected("no \xff")
		}
		return plugins.Replaced([]byte(`1`))
	}})
	info, err := p.Describe(t.Context(), nil)
	if err != nil || info.Name != "each" || info.Concurrency != 4 {
		t.Fatalf("%+v, %v", info, err)
	}
	if err := p.Open(t.Context(), plugins.Device{}, nil); err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		plugins.Answer
		expired bool
	}
	ask := func(text string, limit time.Duration) <-chan outcome {
		answered := make(chan outcome, 2)
		p.Ask(textRecord(text), limit, func(a plugins.Answer, expired bool) { answered <- outcome{a, expired} })
		return answered
	}
	for range 3 { // on goroutines that are used again
		if got := <-ask(`"fine"`, time.Hour); got.Verdict != plugins.Lines || got.expired {
			t.Errorf("%+v", got)
		}
		if got := <-ask(`"panic"`, time.Hour); got.Verdict != plugins.Failed || fault.KindOf(got.Err) != fault.Batch ||
			!strings.Contains(got.Err.Error(), "the kernel panicked: out of ideas") || !strings.Contains(fault.As(got.Err).Detail, "within_test.go") {
			t.Errorf("%+v", got)
		}
	}
	if got := <-ask(`"slow"`, 10*time.Millisecond); got.Verdict != plugins.Retry || !got.expired {
		t.Errorf("%+v", got)
	}
	for limit, want := range map[time.Duration]string{time.Hour: "true", 2 * time.Hour: "false"} { // the kernel itself limits the second
		if got := <-ask(`"limit"`, limit); string(got.Lines[0]) != want {
			t.Errorf("limit %s: the call has a deadline: %s, want %s", limit, got.Lines[0], want)
		}
	}
	if got := <-ask(`"bad"`, time.Hour); got.Message != "no \ufffd" {
		t.Errorf("%q", got.Message)
	}
	if p.Broken() || p.Alloc(10) != nil {
		t.Error("it is broken, or has memory to share")
	}
	slow := ask(`"slow"`, time.Hour)
	p.Kill()
	if got := <-slow; got.Verdict != plugins.Retry || got.expired {
		t.Errorf("%+v", got)
	}
	<-p.Done()
}
