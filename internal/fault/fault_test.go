package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
)

// golden is the wire format, which kernels and workers of other versions use. Lines may be
// added but must not change.
var golden = []struct {
	kind   Kind
	number uint8
	name   string
}{
	{Unknown, 0, "unknown"},
	{Record, 1, "record"},
	{Batch, 2, "batch"},
	{OOM, 3, "oom"},
	{Crash, 4, "crash"},
	{Timeout, 5, "timeout"},
	{Device, 6, "device"},
	{Worker, 7, "worker"},
	{Incompatible, 8, "incompatible"},
	{Storage, 9, "storage"},
	{Canceled, 10, "canceled"},
	{Upstream, 11, "upstream"},
	{Usage, 12, "usage"},
	{NoDevice, 13, "no-device"},
	{Conflict, 14, "conflict"},
	{Stopped, 15, "stopped"},
	{Fetch, 16, "fetch"},
}

func TestKindsAreStable(t *testing.T) {
	if len(golden) != len(names) {
		t.Errorf("%d kinds have a name, %d are in the table", len(names), len(golden))
	}
	seen := make(map[string]bool)
	for _, g := range golden {
		if uint8(g.kind) != g.number || g.kind.String() != g.name || !g.kind.Known() {
			t.Errorf("kind %d is %q; it was %d, %q", uint8(g.kind), g.kind, g.number, g.name)
		}
		if seen[g.name] {
			t.Errorf("%q is there twice", g.name)
		}
		seen[g.name] = true
		var back Kind
		if err := back.UnmarshalText([]byte(g.name)); err != nil || back != g.kind {
			t.Errorf("%q was read as %s: %v", g.name, back, err)
		}
	}
}

// An unregistered kind is Unknown.
func TestUnknownKinds(t *testing.T) {
	if k := Kind(200); k.Known() || k.String() != "kind-200" {
		t.Errorf("kind 200: %s", k)
	}
	kind := OOM
	if err := kind.UnmarshalText([]byte("from-the-future")); err != nil || kind != Unknown {
		t.Errorf("%s, %v", kind, err)
	}
}

func TestJSON(t *testing.T) {
	e := New(Crash, "kernel process ended: %w", io.EOF).WithDetail("last words")
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"kind":"crash","message":"kernel process ended: EOF","detail":"last words"}`; string(data) != want {
		t.Errorf("%s", data)
	}
	var back Error
	if err := json.Unmarshal(data, &back); err != nil || back.Kind != Crash || back.Message != e.Message || back.Detail != e.Detail {
		t.Errorf("%+v, %v", back, err)
	}
	if data, _ := json.Marshal(New(Record, "no")); string(data) != `{"kind":"record","message":"no"}` {
		t.Errorf("without detail: %s", data)
	}
}

func TestNewKeepsCauses(t *testing.T) {
	if e := New(Storage, "write: %w and %w", io.ErrShortWrite, io.EOF); !errors.Is(e, io.ErrShortWrite) || !errors.Is(e, io.EOF) || e.Message != "write: short write and EOF" {
		t.Errorf("two causes: %#v", e)
	}
	if e := New(Storage, "write: %w", io.EOF); !errors.Is(e, io.EOF) {
		t.Error("one cause is lost")
	}
	if e := New(Storage, "write: %v", io.EOF); errors.Is(e, io.EOF) || e.Unwrap() != nil {
		t.Error("a cause that was not wrapped")
	}
}

func TestWrap(t *testing.T) {
	if KernelException.Wrap(nil) != nil {
		t.Error("nil became an error")
	}
	err := KernelException.Wrap(io.EOF)
	if KindOf(err) != Batch || !errors.Is(err, io.EOF) || err.Error() != "EOF" {
		t.Errorf("plain: %#v", err)
	}
	classified := fmt.Errorf("outer: %w", New(OOM, "inner"))
	if got := KernelException.Wrap(classified); got != classified || KindOf(got) != OOM {
		t.Errorf("classified already: %#v", got)
	}
}

func TestAs(t *testing.T) {
	if As(nil) != nil || As(io.EOF) != nil || KindOf(nil) != Unknown || KindOf(io.EOF) != Unknown {
		t.Error("an unclassified error is classified")
	}
	e := New(Device, "lost")
	if As(fmt.Errorf("a: %w", fmt.Errorf("b: %w", e))) != e {
		t.Error("not found in the chain")
	}
	// The outermost kind decides.
	if got := KindOf(New(Worker, "w: %w", e)); got != Worker {
		t.Errorf("kind %s", got)
	}
}

func TestWithDetailCopies(t *testing.T) {
	e := New(Batch, "b: %w", io.EOF)
	d := e.WithDetail("trace")
	if e.Detail != "" || d.Detail != "trace" || d.Kind != Batch || !errors.Is(d, io.EOF) {
		t.Errorf("%#v, %#v", e, d)
	}
}
