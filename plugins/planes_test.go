package plugins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"github.com/gpurun/gpurun/internal/shmem"
	"math/rand/v2"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// planes runs a test over both transports: inline in the messages, and in shared memory,
// which then holds even the smallest strings. connect is a Loopback that has been
// described.
func planes(t *testing.T, test func(t *testing.T, connect func(*testing.T, Kernel) *client)) {
	t.Helper()
	t.Run("inline", func(t *testing.T) {
		test(t, func(t *testing.T, k Kernel) *client { return connected(t, k, nil, nil) })
	})
	t.Run("arena", func(t *testing.T) {
		test(t, func(t *testing.T, k Kernel) *client {
			host, kernel := arenaPair(t, smallArenaSize)
			return connected(t, k, host, kernel)
		})
	})
}

func connected(t *testing.T, k Kernel, host, kernel *arena) *client {
	t.Helper()
	proxy, end := loopback(k, host, kernel)
	t.Cleanup(end)
	if _, err := proxy.Describe(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if (proxy.link.sharedArena() != nil) != (host != nil) {
		t.Fatal("it uses the wrong transport")
	}
	return proxy
}

// place copies records into the arena, as a worker does when it reads them, with the given
// number of bytes between them.
func place(t *testing.T, a *arena, gap int, records ...[]byte) (Batch, *Memory) {
	t.Helper()
	total := 0
	for _, record := range records {
		total += len(record) + gap
	}
	memory := a.alloc(total)
	if memory == nil {
		t.Fatal("no memory left")
	}
	free, placed := memory.Bytes(), make([][]byte, len(records))
	for i, record := range records {
		n := copy(free, record)
		placed[i] = free[:n:n]
		free = free[n+gap:]
	}
	return NewBatch(placed), memory
}

// answering returns the answer that the first record of a batch names.
type answering struct{ answers []*Results }

func (answering) Describe(context.Context, Config) (Info, error) { return Info{}, nil }
func (answering) Open(context.Context, Device, Config) error     { return nil }
func (answering) Close() error                                   { return nil }
func (k answering) Process(_ context.Context, batch Batch, r *Results) error {
	var which int
	if _, err := fmt.Sscan(string(batch.Record(0)), &which); err != nil {
		return err
	}
	if which >= len(k.answers) {
		return errors.New("no answer")
	}
	answer := k.answers[which]
	r.verdicts, r.lines, r.refusals, r.columns, r.isolated = answer.verdicts, answer.lines, answer.refusals, answer.columns, answer.isolated
	return nil
}

// TestPlanesGiveTheSame: results of all kinds arrive unchanged over both transports, even
// if the arena is full.
func TestPlanesGiveTheSame(t *testing.T) {
	var k answering
	for seed := range uint64(100) {
		k.answers = append(k.answers, randomResults(rand.New(rand.NewPCG(seed, 3))))
	}
	check := func(t *testing.T, proxy *client) {
		for i, answer := range k.answers {
			records := make([][]byte, answer.Len())
			records[0] = fmt.Append(nil, i)
			got, err := Call(t.Context(), proxy, NewBatch(records))
			if err != nil {
				t.Fatalf("answer %d: %v", i, err)
			}
			if want := shown(answer); shown(got) != want {
				t.Fatalf("answer %d is\n%s\ninstead of\n%s", i, shown(got), want)
			}
		}
	}
	planes(t, func(t *testing.T, connect func(*testing.T, Kernel) *client) { check(t, connect(t, k)) })
	t.Run("full", func(t *testing.T) {
		host, kernel := arenaPair(t, 4*minRegion)
		for range 2 {
			defer host.alloc(1).Free()
			defer kernel.alloc(1).Free()
		}
		check(t, connected(t, k, host, kernel))
	})
	t.Run("nearly full", func(t *testing.T) {
		host, kernel := arenaPair(t, 4*minRegion)
		check(t, connected(t, k, host, kernel))
	})
}

// reusing writes each answer into the same buffer, which is allowed: results are complete
// when Process returns, or when they are finished.
type reusing struct {
	deferred bool
	buffer   []byte
	values   []int64
}

func (k *reusing) Describe(context.Context, Config) (Info, error) {
	return Info{InFlight: 4}, nil
}
func (*reusing) Open(context.Context, Device, Config) error { return nil }
func (*reusing) Close() error                               { return nil }

func (k *reusing) Process(_ context.Context, batch Batch, r *Results) error {
	finish := func(error) {}
	if k.deferred {
		finish = r.Defer()
	}
	k.buffer = append(k.buffer[:0], bytes.Repeat(batch.Record(0), 20_000)...)
	k.values = append(k.values[:0], int64(len(k.buffer)), int64(batch.Record(0)[0]))
	r.Line(0, k.buffer)
	r.Column(Int64s("n", 2, k.values))
	finish(nil)
	return nil
}

func TestKernelReusesItsMemory(t *testing.T) {
	planes(t, func(t *testing.T, connect func(*testing.T, Kernel) *client) {
		for _, deferred := range []bool{false, true} {
			t.Run(fmt.Sprint("deferred ", deferred), func(t *testing.T) {
				proxy := connect(t, &reusing{deferred: deferred})
				var sent []*Results
				for i := range 100 {
					sent = append(sent, Submit(t.Context(), proxy, numbered(i%10)))
				}
				for i, r := range sent {
					if err := r.Wait(t.Context()); err != nil {
						t.Fatal(err)
					}
					want := bytes.Repeat(fmt.Append(nil, i%10), 20_000)
					if !bytes.Equal(r.At(0).Lines[0], want) {
						t.Fatalf("answer %d is another's", i)
					}
				}
			})
		}
	})
}

// The size limit of a batch is the same for both transports, and nothing is copied for a
// batch that exceeds it.
func TestBatchOverTheLimit(t *testing.T) {
	block := make([]byte, 64<<20)
	many := make([][]byte, maxMessage/len(block)+1)
	for i := range many {
		many[i] = block
	}
	planes(t, func(t *testing.T, connect func(*testing.T, Kernel) *client) {
		k := filler{fill: func(r *Results) error { r.Lines(0, many...); return nil }}
		proxy := connect(t, k)
		_, err := Call(t.Context(), proxy, numbered(1))
		if fault.KindOf(err) != fault.Batch || err.Error() != fmt.Sprintf("kernel returned %d bytes for one batch; the limit is %d", len(many)*len(block), maxMessage) {
			t.Errorf("results: %v", err)
		}
		_, err = Call(t.Context(), proxy, NewBatch(many))
		if fault.KindOf(err) != fault.Batch || err.Error() != fmt.Sprintf("a batch of %d bytes exceeds the limit of %d", len(many)*len(block), maxMessage) {
			t.Errorf("records: %v", err)
		}
		k.fill = func(r *Results) error { r.Drop(0); return nil }
		if _, err := Call(t.Context(), connect(t, k), numbered(1)); err != nil {
			t.Errorf("a batch afterwards: %v", err)
		}
	})
}

func TestBatchOfNothing(t *testing.T) {
	planes(t, func(t *testing.T, connect func(*testing.T, Kernel) *client) {
		proxy := connect(t, filler{fill: func(*Results) error { return nil }})
		if r, err := Call(t.Context(), proxy, NewBatch(nil)); err != nil || r.Len() != 0 {
			t.Errorf("error: %v", err)
		}
	})
}

// arenaPair returns both ends of an arena. The
// kernel's end stays mapped: a kernel may still read a batch after the test ends.
func arenaPair(t testing.TB, size uint64) (host, kernel *arena) {
	t.Helper()
	host, kernel = pairedArenas(size)
	if host == nil {
		t.Skip("there is no shared memory here")
	}
	t.Cleanup(host.close)
	return host, kernel
}

// pairedArenas returns both ends of an arena in one process; nil if there is none.
func pairedArenas(size uint64) (host, kernel *arena) {
	host, file, err := makeArena(size)
	if err != nil {
		return nil, nil
	}
	defer file.Close()
	if kernel, err = mapArena(int(file.Fd()), host.size(), false); err != nil {
		host.close()
		return nil, nil
	}
	unmap := host.unmap
	host.unmap = func() { // the kernel's end may stay mapped, but releases its memory
		shmem.Drop(host.own, 0, len(host.own))
		shmem.Drop(kernel.own, 0, len(kernel.own))
		unmap()
	}
	return host, kernel
}

// size returns the size of both halves together.
func (a *arena) size() uint64 {
	if a == nil {
		return 0
	}
	return uint64(len(a.own) + len(a.peer))
}
