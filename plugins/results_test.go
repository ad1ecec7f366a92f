package plugins

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/internal/fault"
)

// filler is a kernel that consists of its Process.
type filler struct {
	Base
	fill func(*Results) error
}

func (f filler) Process(_ context.Context, _ Batch, r *Results) error { return f.fill(r) }

func records(n int) Batch {
	list := make([][]byte, n)
	for i := range list {
		list[i] = fmt.Appendf(nil, `{"id":%d}`, i)
	}
	return NewBatch(list)
}

// TestContract: a violation gives the same error directly and through the protocol.
func TestContract(t *testing.T) {
	all := func(r *Results) {
		for i := range r.Len() {
			r.Unchanged(i)
		}
	}
	tests := []struct {
		name string
		fill func(*Results) error
		want string // in the error; "" for none
	}{
		{"complete", func(r *Results) error { all(r); return nil }, ""},
		{"no verdict", func(r *Results) error { return nil }, "gave 0 of 3 records a verdict; the first without one is record 0"},
		{"one missing", func(r *Results) error { r.Drop(0); r.Fail(2, "no"); return nil }, "gave 2 of 3 records a verdict; the first without one is record 1"},
		{"double", func(r *Results) error { all(r); r.Drop(1); return nil }, "record 1 of the batch two verdicts: unchanged, then drop"},
		{"double the same", func(r *Results) error { all(r); r.Unchanged(1); return nil }, "two verdicts"},
		{"past the end", func(r *Results) error { all(r); r.Line(3, []byte("{}")); return nil }, "a verdict for record 3 of a batch of 3"},
		{"before the start", func(r *Results) error { all(r); r.Fail(-1, "x"); return nil }, "a verdict for record -1"},
		{"the first violation is reported", func(r *Results) error { r.Drop(7); r.Drop(8); return nil }, "record 7"},
		{"columns", func(r *Results) error { r.Column(Int64s("n", 0, []int64{1, 2, 3})); return nil }, ""},
		{"columns and verdicts", func(r *Results) error {
			r.Fail(1, "no")
			r.Column(Int64s("n", 2, []int64{1, 2, 3, 4, 5, 6}))
			return nil
		}, ""},
		{"short column", func(r *Results) error { r.Column(Bools("b", []bool{true})); return nil }, `column "b" values for 1 record; the batch has 3`},
		{"long column", func(r *Results) error { r.Column(Float32s("f", 2, make([]float32, 8))); return nil }, `column "f" values for 4 records; the batch has 3`},
		{"uneven column", func(r *Results) error { r.Column(Float64s("f", 2, make([]float64, 7))); return nil }, `7 values, which is not a multiple of its width 2`},
		{"nameless column", func(r *Results) error { r.Column(Strings("", make([]string, 3))); return nil }, "a column without a name"},
		{"column of nothing", func(r *Results) error { r.Column(Column{Name: "x"}); return nil }, `column "x" values for 0 records`},
		{"wrong dimensions", func(r *Results) error {
			r.Column(Float64s("f", 4, make([]float64, 4*r.Len())).Shaped(2, 3))
			return nil
		}, `the dimensions [2 3], which do not hold its 4 values`},
		{"column twice", func(r *Results) error {
			r.Column(Strings("s", make([]string, 3)))
			r.Column(Bools("s", make([]bool, 3)))
			return nil
		}, `column "s" twice`},
		{"64 columns", func(r *Results) error { columns(r, 64); return nil }, ""},
		{"65 columns", func(r *Results) error { columns(r, 65); return nil }, "more than 64 columns"},
		{"error", func(r *Results) error { all(r); return errors.New("the batch is no good") }, "the batch is no good"},
		{"error before breach", func(r *Results) error { r.Drop(9); return errors.New("mine") }, "mine"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			direct := call(t, filler{fill: test.fill}, records(3), test.want)
			planes(t, func(t *testing.T, connect func(*testing.T, Kernel) *client) {
				wired := call(t, connect(t, filler{fill: test.fill}), records(3), test.want)
				if direct != wired {
					t.Errorf("directly %q, through the protocol %q", direct, wired)
				}
			})
		})
	}
}

func columns(r *Results, n int) {
	for i := range n {
		r.Column(Int64s(fmt.Sprint("c", i), 0, make([]int64, r.Len())))
	}
}

func call(t *testing.T, k Kernel, batch Batch, want string) string {
	t.Helper()
	_, err := Call(t.Context(), k, batch)
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

func TestLinesOfNoneIsDrop(t *testing.T) {
	r := NewResults(1)
	r.Lines(0)
	r.complete(nil)
	if got := r.At(0).Verdict; got != Dropped {
		t.Errorf("verdict %s", got)
	}
}

// TestResultsAreSmall: verdicts without data allocate nothing, in the kernel and in its
// caller, and the first verdict with data leaves the others unchanged.
func TestResultsAreSmall(t *testing.T) {
	r := NewResults(5)
	r.Unchanged(0)
	r.Drop(1)
	r.Column(Float64s("x", 0, make([]float64, 5)))
	if r.lines != nil || r.refusals != nil {
		t.Error("memory is allocated before a verdict needs it")
	}
	r.Line(2, []byte("1"))
	r.FailIn(3, "step", "no")
	r.complete(nil)
	want := []Result{
		{Verdict: Unchanged}, {Verdict: Dropped}, {Verdict: Lines, Lines: [][]byte{[]byte("1")}},
		{Verdict: Failed, Message: "no", Step: "step"}, {Verdict: Columns},
	}
	for i := range want {
		if diff := cmp.Diff(want[i], r.At(i)); diff != "" {
			t.Errorf("record %d: %s", i, diff)
		}
	}
	dropped, got := NewResults(1), NewResults(1)
	dropped.Drop(0)
	if err := unpackReply(nil, packReply(&carrier{}, 1, Batch{}, dropped), got); err != nil || got.lines != nil || got.refusals != nil {
		t.Errorf("unpacking allocated memory or failed: %v", err)
	}
}

func TestVerdictNames(t *testing.T) {
	for v, want := range map[Verdict]string{0: "no verdict", 1: "unchanged", 2: "lines", 3: "columns", 4: "drop", 5: "fail", 6: "verdict 6", 255: "verdict 255"} {
		if v.String() != want {
			t.Errorf("verdict %d: %q", uint8(v), v.String())
		}
	}
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
		{"out of memory", OutOfMemory(cause), fault.OOM, ""},
		{"device lost", DeviceLost(cause), fault.Device, ""},
		{"detail", Detail(cause, "trace"), fault.Batch, "trace"},
		{"detail of classified", Detail(OutOfMemory(cause), "trace"), fault.OOM, "trace"},
		{"classified detail", OutOfMemory(Detail(cause, "trace")), fault.OOM, "trace"},
		{"classified again", DeviceLost(OutOfMemory(cause)), fault.Device, ""},
		{"wrapped", fmt.Errorf("outer: %w", OutOfMemory(cause)), fault.OOM, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			k := filler{fill: func(*Results) error { return test.err }}
			proxy, end := Loopback(k)
			defer end()
			for name, kernel := range map[string]Kernel{"direct": k, "wired": proxy} {
				_, err := Call(t.Context(), kernel, records(1))
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
		"OutOfMemory": OutOfMemory, "DeviceLost": DeviceLost,
		"Detail": func(err error) error { return Detail(err, "x") },
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
		{Detail(errors.New("with trace"), "trace"), fault.Incompatible},
		{OutOfMemory(errors.New("memory")), fault.OOM},
		{DeviceLost(errors.New("lost")), fault.Device},
	} {
		proxy, end := Loopback(opener{err: test.err})
		if err := proxy.Open(t.Context(), Device{}, nil); fault.KindOf(err) != test.kind || err.Error() != test.err.Error() {
			t.Errorf("%v: kind %s, %v", test.err, fault.KindOf(err), err)
		}
		if _, err := proxy.Describe(t.Context(), nil); fault.KindOf(err) != test.kind {
			t.Errorf("%v: kind %s, %v", test.err, fault.KindOf(err), err)
		}
		end()
	}
}

type opener struct {
	Base
	err error
}

func (o opener) Describe(context.Context, Config) (Info, error)       { return Info{}, o.err }
func (o opener) Open(context.Context, Device, Config) error           { return o.err }
func (o opener) Process(_ context.Context, _ Batch, _ *Results) error { return o.err }

func TestConfigDecode(t *testing.T) {
	type config struct{ Size int }
	for text, want := range map[string]int{``: 7, "\n": 7, `{}`: 7, `{"size":3}`: 3, `null`: 7} {
		c := config{Size: 7}
		if err := Config(text).Decode(&c); err != nil || c.Size != want {
			t.Errorf("%q: %d, %v", text, c.Size, err)
		}
	}
	for text, want := range map[string]string{
		`{"sise":3}`: `unknown field "sise"; did you mean Size?`, `{"colors":3}`: `unknown field "colors"; the settings are Size`, `{"size":"3"}`: "Size must be a whole number, not a string", `{"size":3}}`: "unexpected data after", `{`: "unexpected", `1`: "it must be an object, not a number",
	} {
		err := Config(text).Decode(&config{})
		if fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A batch of verdicts without data allocates nothing for data on either side; one record's
// lines allocate it for all.
func TestResultsTakeNoRoomForNothing(t *testing.T) {
	fill := func(r *Results) error {
		for i := range r.Len() {
			r.Unchanged(i)
		}
		return nil
	}
	proxy, end := Loopback(filler{fill: fill})
	defer end()
	for _, k := range []Kernel{filler{fill: fill}, proxy} {
		r, err := Call(t.Context(), k, records(3))
		if err != nil {
			t.Fatal(err)
		}
		if r.lines != nil || r.refusals != nil {
			t.Errorf("%T: memory is allocated for %d lines and %d messages", k, len(r.lines), len(r.refusals))
		}
	}
	r := NewResults(3)
	r.Line(1, []byte("{}"))
	r.FailIn(2, "step", "no")
	if got := r.At(1); got.Verdict != Lines || len(got.Lines) != 1 || string(got.Lines[0]) != "{}" {
		t.Errorf("record 1 is %+v", got)
	}
	if got := r.At(2); got.Verdict != Failed || got.Message != "no" || got.Step != "step" {
		t.Errorf("record 2 is %+v", got)
	}
	if got := r.At(0); got.Verdict != NoVerdict || got.Lines != nil || got.Message != "" {
		t.Errorf("record 0 is %+v", got)
	}
}
