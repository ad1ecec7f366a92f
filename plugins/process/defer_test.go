package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// gate is a kernel with batches in flight that are completed by hand.
type gate struct {
	plugins.Base
	inFlight int
	opened   chan pending
	closed   atomic.Bool
}

type pending struct {
	batch   plugins.Batch
	results *plugins.Results
	finish  func(error)
}

func newGate(inFlight int) *gate {
	return &gate{inFlight: inFlight, opened: make(chan pending, 100)}
}

func (g *gate) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{InFlight: g.inFlight}, nil
}

func (g *gate) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	g.opened <- pending{batch, results, results.Defer()}
	return nil
}

func (g *gate) Close() error { g.closed.Store(true); return nil }

// answer completes a batch with copies of its records.
func (p pending) answer() {
	for i := range p.batch.Len() {
		p.results.Line(i, bytes.Clone(p.batch.Record(i)))
	}
	p.finish(nil)
}

func (g *gate) next(t *testing.T) pending {
	t.Helper()
	select {
	case p := <-g.opened:
		return p
	case <-time.After(5 * time.Second):
		t.Fatal("the kernel was not called")
		panic("unreachable")
	}
}

// serveGate opens a gate through the protocol.
func serveGate(t *testing.T, inFlight int) (*gate, plugins.Kernel) {
	t.Helper()
	g := newGate(inFlight)
	proxy, end := Loopback(g)
	t.Cleanup(end)
	if _, err := proxy.Describe(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return g, proxy
}

func numbered(n int) plugins.Batch { return plugins.NewBatch([][]byte{fmt.Appendf(nil, "%d", n)}) }

func lineOf(t *testing.T, r *plugins.Results) string {
	t.Helper()
	if err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return string(r.At(0).Lines[0])
}

func TestDeferKeepsOrder(t *testing.T) {
	g, proxy := serveGate(t, 3)
	var sent []*plugins.Results
	for i := range 10 {
		sent = append(sent, plugins.Submit(t.Context(), proxy, numbered(i)))
	}
	// The kernel gets three batches and no more.
	first, second, third := g.next(t), g.next(t), g.next(t)
	select {
	case <-g.opened:
		t.Fatal("a fourth batch came while three were open")
	case <-time.After(50 * time.Millisecond):
	}
	// Out of order: nothing arrives before the first is complete.
	third.answer()
	second.answer()
	select {
	case <-sent[1].Done():
		t.Fatal("the second batch overtook the first")
	case <-time.After(50 * time.Millisecond):
	}
	first.answer()
	for i := range 7 {
		p := g.next(t)
		if got := string(p.batch.Record(0)); got != fmt.Sprint(i+3) {
			t.Errorf("batch %d holds %s", i+3, got)
		}
		p.answer()
	}
	for i, r := range sent {
		if got := lineOf(t, r); got != fmt.Sprint(i) {
			t.Errorf("batch %d gave %s", i, got)
		}
	}
}

func TestDeferErrors(t *testing.T) {
	g, proxy := serveGate(t, 2)
	failed := plugins.Submit(t.Context(), proxy, numbered(0))
	incomplete := plugins.Submit(t.Context(), proxy, numbered(1))
	good := plugins.Submit(t.Context(), proxy, numbered(2))
	g.next(t).finish(plugins.OutOfMemory(errors.New("too late")))
	g.next(t).finish(nil)
	g.next(t).answer()
	if err := failed.Wait(t.Context()); fault.KindOf(err) != fault.OOM || err.Error() != "too late" {
		t.Errorf("a late error: %v", err)
	}
	if err := incomplete.Wait(t.Context()); fault.KindOf(err) != fault.Batch || !strings.Contains(err.Error(), "0 of 1 record a verdict") {
		t.Errorf("finished without a verdict: %v", err)
	}
	if got := lineOf(t, good); got != "2" {
		t.Errorf("after errors: %s", got)
	}
}

// An error from Process fails the batch even after Defer.
func TestErrorAfterDefer(t *testing.T) {
	late := make(chan func(error), 1)
	k := filler{fill: func(r *plugins.Results) error {
		late <- r.Defer()
		return errors.New("changed its mind")
	}}
	proxy, end := Loopback(k)
	defer end()
	for name, kernel := range map[string]plugins.Kernel{"direct": k, "wired": proxy} {
		_, err := plugins.Call(t.Context(), kernel, records(2))
		if err == nil || err.Error() != "changed its mind" {
			t.Errorf("%s: %v", name, err)
		}
		(<-late)(nil) // too late to matter
	}
}

// The kernel is closed only after all batches in flight.
func TestCloseWaitsForBatches(t *testing.T) {
	g, proxy := serveGate(t, 2)
	sent := plugins.Submit(t.Context(), proxy, numbered(1))
	p := g.next(t)
	closed := make(chan error, 1)
	go func() { closed <- proxy.Close() }()
	select {
	case <-closed:
		t.Fatal("closed with a batch in flight")
	case <-time.After(50 * time.Millisecond):
	}
	if g.closed.Load() {
		t.Fatal("Close was called while a batch was computed")
	}
	p.answer()
	if err := <-closed; err != nil || !g.closed.Load() {
		t.Errorf("close: %v", err)
	}
	if got := lineOf(t, sent); got != "1" {
		t.Errorf("the batch gave %s", got)
	}
	if _, err := plugins.Call(t.Context(), proxy, numbered(2)); fault.KindOf(err) != fault.Crash {
		t.Errorf("a batch after Close: %v", err)
	}
}

// A kernel that stops reading must not block its caller, which enforces a timeout.
func TestProcessNeverWaits(t *testing.T) {
	g, proxy := serveGate(t, 1)
	big := plugins.NewBatch([][]byte{make([]byte, 12<<20)})
	var sent []*plugins.Results
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 4 {
			sent = append(sent, plugins.Submit(t.Context(), proxy, big))
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("Process blocks on the kernel")
	}
	for range 4 {
		p := g.next(t)
		p.results.Drop(0)
		p.finish(nil)
	}
	for _, r := range sent {
		if err := r.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// When the connection ends, all batches in flight are completed.
func TestConnectionEnds(t *testing.T) {
	g := newGate(1)
	proxy, end := Loopback(g)
	var sent []*plugins.Results
	for i := range 3 {
		sent = append(sent, plugins.Submit(t.Context(), proxy, numbered(i)))
	}
	g.next(t)
	end()
	for _, r := range sent {
		if err := r.Wait(t.Context()); fault.KindOf(err) != fault.Crash {
			t.Errorf("in flight: %v", err)
		}
	}
	if !proxy.(*client).Broken() {
		t.Error("the proxy does not know")
	}
	if _, err := plugins.Call(t.Context(), proxy, numbered(9)); fault.KindOf(err) != fault.Crash {
		t.Errorf("afterwards: %v", err)
	}
}

// The kernel gets one call at a time, as the contract says, whatever the other side does.
func TestOneCallAtATime(t *testing.T) {
	k := &exclusive{}
	proxy, end := Loopback(k)
	defer end()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { _, _ = proxy.Describe(t.Context(), nil) })
		group.Go(func() { _ = proxy.Open(t.Context(), plugins.Device{}, nil) })
		group.Go(func() { _, _ = plugins.Call(t.Context(), proxy, numbered(1)) })
	}
	group.Wait()
	_ = proxy.Close()
	if k.clash.Load() {
		t.Error("two calls at a time")
	}
}

type exclusive struct {
	busy, clash atomic.Bool
}

func (e *exclusive) call() {
	if !e.busy.CompareAndSwap(false, true) {
		e.clash.Store(true)
	}
	time.Sleep(time.Millisecond)
	e.busy.Store(false)
}

func (e *exclusive) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	e.call()
	return plugins.Info{}, nil
}
func (e *exclusive) Open(context.Context, plugins.Device, plugins.Config) error { e.call(); return nil }
func (e *exclusive) Close() error                                               { e.call(); return nil }
func (e *exclusive) Process(_ context.Context, _ plugins.Batch, r *plugins.Results) error {
	e.call()
	r.Unchanged(0)
	return nil
}

func BenchmarkLoopback(b *testing.B) {
	proxy, end := Loopback(filler{fill: func(r *plugins.Results) error {
		for i := range r.Len() {
			r.Unchanged(i)
		}
		return nil
	}})
	defer end()
	record := []byte(`{"text":"` + strings.Repeat("x", 1000) + `"}`)
	list := make([][]byte, 128)
	for i := range list {
		list[i] = record
	}
	b.SetBytes(int64(len(list) * len(record)))
	for b.Loop() {
		if _, err := plugins.Call(b.Context(), proxy, plugins.NewBatch(list)); err != nil {
			b.Fatal(err)
		}
	}
}

// reuser returns results from one buffer, which it overwrites as early as allowed.
type reuser struct {
	plugins.Base
	buffer []byte
}

func (r *reuser) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	r.buffer = append(r.buffer[:0], batch.Record(0)...)
	results.Line(0, r.buffer)
	return nil
}

// The kernel may reuse the memory of complete results, however many batches wait to be
// sent.
func TestMemoryIsTheKernelsAgain(t *testing.T) {
	proxy, end := Loopback(&reuser{})
	defer end()
	var sent []*plugins.Results
	for i := range 1000 {
		sent = append(sent, plugins.Submit(t.Context(), proxy, numbered(i)))
	}
	for i, results := range sent {
		if got := lineOf(t, results); got != fmt.Sprint(i) {
			t.Fatalf("batch %d gave %s", i, got)
		}
	}
}
