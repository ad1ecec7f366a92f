package process

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/shmem"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// planes runs a test over both transports: inline in the messages, and in shared memory,
// which then holds even the smallest strings. connect is a Loopback that has been
// described.
func planes(t *testing.T, test func(t *testing.T, connect func(*testing.T, plugins.Kernel) *client)) {
	t.Helper()
	t.Run("inline", func(t *testing.T) {
		test(t, func(t *testing.T, k plugins.Kernel) *client { return connected(t, k, nil, nil) })
	})
	t.Run("arena", func(t *testing.T) {
		test(t, func(t *testing.T, k plugins.Kernel) *client {
			host, kernel := arenaPair(t, protocol.SmallArenaSize)
			return connected(t, k, host, kernel)
		})
	})
}

func connected(t *testing.T, k plugins.Kernel, host, kernel *protocol.Arena) *client {
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
func place(t *testing.T, a *protocol.Arena, gap int, records ...[]byte) (plugins.Batch, *protocol.Memory) {
	t.Helper()
	total := 0
	for _, record := range records {
		total += len(record) + gap
	}
	memory := a.Alloc(total)
	if memory == nil {
		t.Fatal("no memory left")
	}
	free, placed := memory.Bytes(), make([][]byte, len(records))
	for i, record := range records {
		n := copy(free, record)
		placed[i] = free[:n:n]
		free = free[n+gap:]
	}
	return plugins.NewBatch(placed), memory
}

// answering gives the answer that the first record of a batch names.
type answering struct {
	plugins.Base
	answers []func(*plugins.Results)
}

func (k answering) Process(_ context.Context, batch plugins.Batch, r *plugins.Results) error {
	var which int
	if _, err := fmt.Sscan(string(batch.Record(0)), &which); err != nil {
		return err
	}
	k.answers[which](r)
	return nil
}

// TestPlanesGiveTheSame: results of all kinds arrive unchanged over both transports, even
// if the arena is full.
func TestPlanesGiveTheSame(t *testing.T) {
	var k answering
	var batches []plugins.Batch
	for seed := range uint64(500) {
		n, fill := randomFill(seed, 3)
		records := make([][]byte, n)
		records[0] = fmt.Append(nil, seed)
		k.answers, batches = append(k.answers, fill), append(batches, plugins.NewBatch(records))
	}
	check := func(t *testing.T, proxy *client) {
		for i, batch := range batches {
			want, err := plugins.Call(t.Context(), k, batch)
			if err != nil {
				t.Fatalf("answer %d: %v", i, err)
			}
			got, err := plugins.Call(t.Context(), proxy, batch)
			if err != nil {
				t.Fatalf("answer %d: %v", i, err)
			}
			if shown(got) != shown(want) {
				t.Fatalf("answer %d is\n%s\ninstead of\n%s", i, shown(got), shown(want))
			}
		}
	}
	planes(t, func(t *testing.T, connect func(*testing.T, plugins.Kernel) *client) { check(t, connect(t, k)) })
	t.Run("full", func(t *testing.T) {
		host, kernel := arenaPair(t, 4*smallestRegion)
		for range 2 {
			defer host.Alloc(1).Free()
			defer kernel.Alloc(1).Free()
		}
		check(t, connected(t, k, host, kernel))
	})
	t.Run("nearly full", func(t *testing.T) {
		host, kernel := arenaPair(t, 4*smallestRegion)
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

func (k *reusing) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{InFlight: 4}, nil
}
func (*reusing) Open(context.Context, plugins.Device, plugins.Config) error { return nil }
func (*reusing) Close() error                                               { return nil }

func (k *reusing) Process(_ context.Context, batch plugins.Batch, r *plugins.Results) error {
	finish := func(error) {}
	if k.deferred {
		finish = r.Defer()
	}
	k.buffer = append(k.buffer[:0], bytes.Repeat(batch.Record(0), 20_000)...)
	k.values = append(k.values[:0], int64(len(k.buffer)), int64(batch.Record(0)[0]))
	r.Line(0, k.buffer)
	r.Column(plugins.Int64s("n", 2, k.values))
	finish(nil)
	return nil
}

func TestKernelReusesItsMemory(t *testing.T) {
	planes(t, func(t *testing.T, connect func(*testing.T, plugins.Kernel) *client) {
		for _, deferred := range []bool{false, true} {
			t.Run(fmt.Sprint("deferred ", deferred), func(t *testing.T) {
				proxy := connect(t, &reusing{deferred: deferred})
				var sent []*plugins.Results
				for i := range 100 {
					sent = append(sent, plugins.Submit(t.Context(), proxy, numbered(i%10)))
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
	many := make([][]byte, protocol.MaxMessage/len(block)+1)
	for i := range many {
		many[i] = block
	}
	planes(t, func(t *testing.T, connect func(*testing.T, plugins.Kernel) *client) {
		k := filler{fill: func(r *plugins.Results) error { r.Lines(0, many...); return nil }}
		proxy := connect(t, k)
		_, err := plugins.Call(t.Context(), proxy, numbered(1))
		if fault.KindOf(err) != fault.Batch || err.Error() != fmt.Sprintf("kernel returned %d bytes for one batch; the limit is %d", len(many)*len(block), protocol.MaxMessage) {
			t.Errorf("results: %v", err)
		}
		_, err = plugins.Call(t.Context(), proxy, plugins.NewBatch(many))
		if fault.KindOf(err) != fault.Batch || err.Error() != fmt.Sprintf("a batch of %d bytes exceeds the limit of %d", len(many)*len(block), protocol.MaxMessage) {
			t.Errorf("records: %v", err)
		}
		k.fill = func(r *plugins.Results) error { r.Drop(0); return nil }
		if _, err := plugins.Call(t.Context(), connect(t, k), numbered(1)); err != nil {
			t.Errorf("a batch afterwards: %v", err)
		}
	})
}

func TestBatchOfNothing(t *testing.T) {
	planes(t, func(t *testing.T, connect func(*testing.T, plugins.Kernel) *client) {
		proxy := connect(t, filler{fill: func(*plugins.Results) error { return nil }})
		if r, err := plugins.Call(t.Context(), proxy, plugins.NewBatch(nil)); err != nil || r.Len() != 0 {
			t.Errorf("error: %v", err)
		}
	})
}

// arenaPair returns both ends of an arena. The
// kernel's end stays mapped: a kernel may still read a batch after the test ends.
func arenaPair(t testing.TB, size uint64) (host, kernel *protocol.Arena) {
	t.Helper()
	host, kernel, end := pairedArenas(size)
	if host == nil {
		t.Skip("there is no shared memory here")
	}
	t.Cleanup(end)
	return host, kernel
}

// pairedArenas returns both ends of an arena in one process; nil if there is none.
func pairedArenas(size uint64) (host, kernel *protocol.Arena, end func()) {
	host, file, err := protocol.MakeArena(size)
	if err != nil {
		return nil, nil, nil
	}
	defer file.Close()
	if kernel, err = protocol.MapArena(int(file.Fd()), size, false); err != nil {
		host.Close()
		return nil, nil, nil
	}
	return host, kernel, func() { // the kernel's end may stay mapped, but releases its memory
		shmem.Drop(host.Own, 0, len(host.Own))
		shmem.Drop(kernel.Own, 0, len(kernel.Own))
		host.Close()
	}
}

const smallestRegion = 4 << 10

// sizeOf returns the size of both halves together.
func sizeOf(a *protocol.Arena) uint64 {
	if a == nil {
		return 0
	}
	return uint64(len(a.Own) + len(a.Peer))
}
