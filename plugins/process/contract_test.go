package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// filler is a kernel that consists of its Process.
type filler struct {
	plugins.Base
	fill func(*plugins.Results) error
}

func (f filler) Process(_ context.Context, _ plugins.Batch, r *plugins.Results) error {
	return f.fill(r)
}

func records(n int) plugins.Batch {
	list := make([][]byte, n)
	for i := range list {
		list[i] = fmt.Appendf(nil, `{"id":%d}`, i)
	}
	return plugins.NewBatch(list)
}

// TestContract: a violation gives the same error directly and through the protocol.
func TestContract(t *testing.T) {
	all := func(r *plugins.Results) {
		for i := range r.Len() {
			r.Unchanged(i)
		}
	}
	tests := []struct {
		name string
		fill func(*plugins.Results) error
		want string // in the error; "" for none
	}{
		{"complete", func(r *plugins.Results) error { all(r); return nil }, ""},
		{"no verdict", func(r *plugins.Results) error { return nil }, "gave 0 of 3 records a verdict; the first without one is record 0"},
		{"one missing", func(r *plugins.Results) error { r.Drop(0); r.Fail(2, "no"); return nil }, "gave 2 of 3 records a verdict; the first without one is record 1"},
		{"double", func(r *plugins.Results) error { all(r); r.Drop(1); return nil }, "record 1 of the batch two verdicts: unchanged, then drop"},
		{"double the same", func(r *plugins.Results) error { all(r); r.Unchanged(1); return nil }, "two verdicts"},
		{"past the end", func(r *plugins.Results) error { all(r); r.Line(3, []byte("{}")); return nil }, "a verdict for record 3 of a batch of 3"},
		{"before the start", func(r *plugins.Results) error { all(r); r.Fail(-1, "x"); return nil }, "a verdict for record -1"},
		{"the first violation is reported", func(r *plugins.Results) error { r.Drop(7); r.Drop(8); return nil }, "record 7"},
		{"columns", func(r *plugins.Results) error { r.Column(plugins.Int64s("n", 0, []int64{1, 2, 3})); return nil }, ""},
		{"columns and verdicts", func(r *plugins.Results) error {
			r.Fail(1, "no")
			r.Column(plugins.Int64s("n", 2, []int64{1, 2, 3, 4, 5, 6}))
			return nil
		}, ""},
		{"short column", func(r *plugins.Results) error { r.Column(plugins.Bools("b", []bool{true})); return nil }, `column "b" values for 1 record; the batch has 3`},
		{"long column", func(r *plugins.Results) error { r.Column(plugins.Float32s("f", 2, make([]float32, 8))); return nil }, `column "f" values for 4 records; the batch has 3`},
		{"uneven column", func(r *plugins.Results) error { r.Column(plugins.Float64s("f", 2, make([]float64, 7))); return nil }, `7 values, which is not a multiple of its width 2`},
		{"nameless column", func(r *plugins.Results) error { r.Column(plugins.Strings("", make([]string, 3))); return nil }, "a column without a name"},
		{"column of nothing", func(r *plugins.Results) error { r.Column(plugins.Column{Name: "x"}); return nil }, `column "x" values for 0 records`},
		{"wrong dimensions", func(r *plugins.Results) error {
			r.Column(plugins.Float64s("f", 4, make([]float64, 4*r.Len())).Shaped(2, 3))
			return nil
		}, `the dimensions [2 3], which do not hold its 4 values`},
		{"column twice", func(r *plugins.Results) error {
			r.Column(plugins.Strings("s", make([]string, 3)))
			r.Column(plugins.Bools("s", make([]bool, 3)))
			return nil
		}, `column "s" twice`},
		{"64 columns", func(r *plugins.Results) error { columns(r, 64); return nil }, ""},
		{"65 columns", func(r *plugins.Results) error { columns(r, 65); return nil }, "more than 64 columns"},
		{"error", func(r *plugins.Results) error { all(r); return errors.New("the batch is no good") }, "the batch is no good"},
		{"error before breach", func(r *plugins.Results) error { r.Drop(9); return errors.New("mine") }, "mine"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			direct := call(t, filler{fill: test.fill}, records(3), test.want)
			planes(t, func(t *testing.T, connect func(*testing.T, plugins.Kernel) *client) {
				wired := call(t, connect(t, filler{fill: test.fill}), records(3), test.want)
				if direct != wired {
					t.Errorf("directly %q, through the protocol %q", direct, wired)
				}
			})
		})
	}
}

func columns(r *plugins.Results, n int) {
	for i := range n {
		r.Column(plugins.Int64s(fmt.Sprint("c", i), 0, make([]int64, r.Len())))
	}
}

func call(t *testing.T, k plugins.Kernel, batch plugins.Batch, want string) string {
	t.Helper()
	_, err := plugins.Call(t.Context(), k, batch)
	if want == "" {
		if err != nil {
			t.Errorf("error: %v", err)
		}
		return ""
	}
	if err == nil {
		t.Fatal("no error")
	}
	kind := fault.Batch
	if strings.Contains(want, "values for") { // a wrong number of results
		kind = fault.Incompatible
	}
	if fault.KindOf(err) != kind || !strings.Contains(err.Error(), want) {
		t.Errorf("error of kind %s: %v", fault.KindOf(err), err)
	}
	return err.Error()
}

func TestClassifiedErrors(t *testing.T) {
	cause := errors.New("cause")
	tests := []struct {
		name   string
		err    error
		kind   fault.Kind
		detail string
	}{
		{"plain", cause, fault.Batch, ""},
		{"out of memory", plugins.OutOfMemory(cause), fault.OOM, ""},
		{"device lost", plugins.DeviceLost(cause), fault.Device, ""},
		{"detail", plugins.Detail(cause, "trace"), fault.Batch, "trace"},
		{"detail of classified", plugins.Detail(plugins.OutOfMemory(cause), "trace"), fault.OOM, "trace"},
		{"classified detail", plugins.OutOfMemory(plugins.Detail(cause, "trace")), fault.OOM, "trace"},
		{"classified again", plugins.DeviceLost(plugins.OutOfMemory(cause)), fault.Device, ""},
		{"wrapped", fmt.Errorf("outer: %w", plugins.OutOfMemory(cause)), fault.OOM, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			k := filler{fill: func(*plugins.Results) error { return test.err }}
			proxy, end := Loopback(k)
			defer end()
			for name, kernel := range map[string]plugins.Kernel{"direct": k, "wired": proxy} {
				_, err := plugins.Call(t.Context(), kernel, records(1))
				e := fault.As(err)
				if e == nil || e.Kind != test.kind || e.Detail != test.detail || err.Error() != test.err.Error() {
					t.Errorf("%s: %#v", name, e)
				}
			}
			if !errors.Is(test.err, cause) {
				t.Error("the cause is lost")
			}
		})
	}
	for name, f := range map[string]func(error) error{
		"OutOfMemory": plugins.OutOfMemory, "DeviceLost": plugins.DeviceLost,
		"Detail": func(err error) error { return plugins.Detail(err, "x") },
	} {
		if err := f(nil); err != nil {
			t.Errorf("%s(nil) is %v", name, err)
		}
	}
}

// An unclassified error from Describe or Open makes the kernel incompatible, with or
// without detail.
func TestOpenErrors(t *testing.T) {
	for _, test := range []struct {
		err  error
		kind fault.Kind
	}{
		{errors.New("plain"), fault.Incompatible},
		{plugins.Detail(errors.New("with trace"), "trace"), fault.Incompatible},
		{plugins.OutOfMemory(errors.New("memory")), fault.OOM},
		{plugins.DeviceLost(errors.New("lost")), fault.Device},
	} {
		proxy, end := Loopback(opener{err: test.err})
		if err := proxy.Open(t.Context(), plugins.Device{}, nil); fault.KindOf(err) != test.kind || err.Error() != test.err.Error() {
			t.Errorf("%v: kind %s, %v", test.err, fault.KindOf(err), err)
		}
		if _, err := proxy.Describe(t.Context(), nil); fault.KindOf(err) != test.kind {
			t.Errorf("%v: kind %s, %v", test.err, fault.KindOf(err), err)
		}
		end()
	}
}

type opener struct {
	plugins.Base
	err error
}

func (o opener) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{}, o.err
}

func (o opener) Open(context.Context, plugins.Device, plugins.Config) error { return o.err }

func (o opener) Process(_ context.Context, _ plugins.Batch, _ *plugins.Results) error { return o.err }

// The author's classification takes precedence, then the text, then the method's default.
func TestClassifyReturned(t *testing.T) {
	const oom, ecc, poison = "CUDA out of memory. Tried to allocate 2.00 MiB", "CUDA error: uncorrectable ECC error encountered",
		"CUDA error: device-side assert triggered"
	for _, test := range []struct {
		err  error
		gpu  bool
		kind fault.Kind // Unknown means the method's default
	}{
		{errors.New(oom), true, fault.OOM},
		{errors.New(ecc), true, fault.Device},
		{errors.New(poison), true, fault.Crash},
		{fmt.Errorf("batch 7: %w", errors.New(oom)), true, fault.OOM},
		{plugins.Detail(errors.New("the model raised an exception"), "Traceback (most recent call last):\n  File \"a.py\"\nRuntimeError: "+oom), true, fault.OOM},
		{plugins.Detail(errors.New(ecc), oom), true, fault.Device},
		{plugins.OutOfMemory(errors.New(ecc)), true, fault.OOM},
		{plugins.DeviceLost(errors.New(oom)), true, fault.Device},
		{plugins.Detail(plugins.DeviceLost(errors.New("x")), oom), true, fault.Device},
		{errors.New("no CUDA-capable device is detected"), false, fault.Unknown}, // a CPU device has none to lose
		{plugins.DeviceLost(errors.New("x")), false, fault.Device},
		{errors.New("plain"), true, fault.Unknown},
	} {
		proxy, end := Loopback(opener{err: test.err})
		want := func(unclassified fault.Kind) fault.Kind {
			if test.kind == fault.Unknown {
				return unclassified
			}
			return test.kind
		}
		err := proxy.Open(t.Context(), plugins.Device{GPU: test.gpu}, nil)
		if got := fault.KindOf(err); got != want(fault.Incompatible) || err.Error() != test.err.Error() {
			t.Errorf("Open, %v: %s", test.err, got)
		}
		_, err = plugins.Call(t.Context(), proxy, records(1))
		if got := fault.KindOf(err); got != want(fault.Batch) || err.Error() != test.err.Error() {
			t.Errorf("Process, %v: %s", test.err, got)
		}
		if e := fault.As(test.err); e != nil && fault.As(err).Detail != e.Detail {
			t.Errorf("%v: the detail is lost", test.err)
		}
		end()
	}
}

// A kernel in another language sends no kinds.
func TestClassifyUnclassifiedReply(t *testing.T) {
	for onCPU, want := range map[bool]fault.Kind{false: fault.Device, true: fault.Batch} {
		c := &batches{link: &link{onCPU: onCPU}}
		err := c.fill(plugins.NewResults(1), &kernelpb.ProcessReply{Failure: []byte(`{"message":"it failed","detail":"GPU is lost"}`)})
		if fault.KindOf(err) != want {
			t.Errorf("on a CPU %v: %s", onCPU, fault.KindOf(err))
		}
	}
	if err := new(link).unpackComputing(nil, fault.Batch); err != nil {
		t.Errorf("no failure is %v", err)
	}
}

// A process with a broken context keeps running and answers, but gets no further batch;
// later batches in flight fail with it.
func TestSpentProcess(t *testing.T) {
	nothingLeft(t)
	p := start(t, program(t, "good"))
	works(t, p)
	poisoned, next := plugins.Submit(t.Context(), p, words("illegal access")), plugins.Submit(t.Context(), p, words("a"))
	err := poisoned.Wait(t.Context())
	if fault.KindOf(err) != fault.Crash || !strings.Contains(err.Error(), "illegal memory access") {
		t.Fatalf("error: %v", err)
	}
	if !p.Broken() {
		t.Error("the proxy is not broken")
	}
	if err := next.Wait(t.Context()); fault.KindOf(err) != fault.Crash {
		t.Errorf("the batch after it: %v", err)
	}
	if _, err := plugins.Call(t.Context(), p, words("a")); fault.KindOf(err) != fault.Crash {
		t.Errorf("a later batch: %v", err)
	}
	select {
	case <-p.Done():
		t.Error("it is dead; that is for its owner to decide")
	default:
	}
	if err := p.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
