package process

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// caching holds 100 bytes more with each batch and releases them on request.
type caching struct {
	plugins.Base
	cached *atomic.Uint64
	err    error
}

func newCaching(err error) caching { return caching{cached: new(atomic.Uint64), err: err} }

func (k caching) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{CanTrim: true}, nil
}

func (k caching) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	k.cached.Add(100)
	for i := range batch.Len() {
		if string(batch.Record(i)) == `"fail the batch"` {
			return errors.New("failed")
		}
		results.Unchanged(i)
	}
	return nil
}

func (k caching) Report() plugins.Report {
	return plugins.Report{Memory: plugins.FrameworkMemory{Library: "torch\xff", Allocated: 7, Cached: k.cached.Load()}}
}

func (k caching) Trim(context.Context) error {
	k.cached.Store(0)
	return k.err
}

// trimming is the proxy of a kernel, in this process or another.
type trimming interface {
	plugins.Kernel
	Trim(context.Context) (before, after plugins.FrameworkMemory, err error)
	Report() plugins.Report
}

func init() {
	programs["caching"] = func() { plugins.Serve(newCaching(nil)) }
}

func checkTrim(t *testing.T, k trimming) {
	t.Helper()
	if m := k.Report().Memory; m != (plugins.FrameworkMemory{}) {
		t.Errorf("before any batch: %+v", m)
	}
	for range 3 {
		if _, err := plugins.Call(t.Context(), k, words("a")); err != nil {
			t.Fatal(err)
		}
	}
	full := plugins.FrameworkMemory{Library: "torch\ufffd", Allocated: 7, Cached: 300}
	if m := k.Report().Memory; m != full {
		t.Errorf("after three batches: %+v", m)
	}
	empty := full
	empty.Cached = 0
	before, after, err := k.Trim(t.Context())
	if err != nil || before != full || after != empty || k.Report().Memory != empty {
		t.Errorf("trimmed from %+v to %+v, then %+v: %v", before, after, k.Report().Memory, err)
	}
	if _, err := plugins.Call(t.Context(), k, words("fail the batch")); err == nil {
		t.Error("no error")
	}
	if _, err := plugins.Call(t.Context(), k, words("a")); err != nil || k.Report().Memory.Cached != 200 {
		t.Errorf("afterwards %+v: %v", k.Report().Memory, err)
	}
}

func TestTrim(t *testing.T) {
	planes(t, func(t *testing.T, connect func(*testing.T, plugins.Kernel) *client) {
		checkTrim(t, connect(t, newCaching(nil)))
	})
	t.Run("process", func(t *testing.T) {
		nothingLeft(t)
		p := start(t, program(t, "caching"))
		if info, err := p.Describe(t.Context(), nil); err != nil || !info.CanTrim {
			t.Errorf("info %+v: %v", info, err)
		}
		checkTrim(t, p)
	})
}

// TestTrimThenTheSame: a kernel that holds as much after a trim as before it is not taken to hold less.
func TestTrimThenTheSame(t *testing.T) {
	proxy, end := Loopback(newCaching(nil))
	defer end()
	k := proxy.(trimming)
	for range 2 {
		if _, err := plugins.Call(t.Context(), k, words("a")); err != nil {
			t.Fatal(err)
		}
		if held := k.Report().Memory.Cached; held != 100 {
			t.Errorf("the kernel holds 100 bytes, and %d are reported", held)
		}
		if _, _, err := k.Trim(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTrimFails(t *testing.T) {
	proxy, end := Loopback(newCaching(errors.New("the cache is locked")))
	defer end()
	_, _, err := proxy.(trimming).Trim(t.Context())
	if fault.KindOf(err) != fault.Batch || !strings.Contains(err.Error(), "the cache is locked") {
		t.Errorf("error: %v", err)
	}
	if _, err := plugins.Call(t.Context(), proxy, words("a")); err != nil {
		t.Error(err)
	}
}

// Trim does nothing for a kernel that does not implement it, or for one in another
// language that does not know the call.
func TestTrimOfOthers(t *testing.T) {
	proxy, end := Loopback(newGate(1))
	defer end()
	others := map[string]trimming{"no trimmer": proxy.(trimming), "another language": start(t, program(t, "too few"))}
	for name, k := range others {
		before, after, err := k.Trim(t.Context())
		if err != nil || before != after || after != (plugins.FrameworkMemory{}) || k.Report().Memory != after {
			t.Errorf("%s: from %+v to %+v: %v", name, before, after, err)
		}
	}
}

// Trim reports that a kernel has exited.
func TestTrimOfTheDead(t *testing.T) {
	nothingLeft(t)
	p := start(t, program(t, "caching"))
	p.KillGroup()
	<-p.Done()
	if _, _, err := p.Trim(t.Context()); fault.KindOf(err) != fault.Crash {
		t.Errorf("error: %v", err)
	}
}
