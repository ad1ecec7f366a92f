package protocol

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/quick"

	"google.golang.org/protobuf/proto"

	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// randomItems returns byte strings of about a size, some of them empty.
func randomItems(r *rand.Rand, n, size int) [][]byte {
	items := make([][]byte, n)
	for i := range items {
		if r.IntN(4) > 0 {
			items[i] = bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(2*size+1))
		}
	}
	return items
}

// Copied items arrive at the other side, in the arena or, if they are short or there is
// no room, inline.
func TestBlockThroughTheArena(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{0, 10, InlineBelow / 8, InlineBelow, 100_000} {
		for _, n := range []int{0, 1, 8, 40} {
			host, kernel := arenaPair(t, 64<<20)
			items := randomItems(r, n, size)
			c := &Carrier{Arena: host, Least: InlineBelow}
			block := overTheWire(t, Pack(c, items))
			total := len(bytes.Join(items, nil))
			if shared := block.Offset != nil; shared != (total >= InlineBelow) {
				t.Errorf("%d bytes are shared: %v", total, shared)
			}
			got, err := UnpackInPlace(block, kernel)
			if err != nil || !equal(got, items) {
				t.Errorf("%d items of %d bytes: %v", n, size, err)
			}
			if c.Free(); host.Used() != 0 {
				t.Errorf("%d regions are used", host.Used())
			}
		}
	}
}

func equal(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// Records that are in the arena are sent in place; others are copied.
func TestRecordsInPlace(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	host, kernel := arenaPair(t, 64<<20)
	check := func(name string, records [][]byte, inPlace bool) {
		t.Helper()
		c := &Carrier{Arena: host}
		block := overTheWire(t, PackShared(c, records))
		if copied := len(c.held) > 0 || block.Offset == nil; copied == inPlace {
			t.Errorf("%s: copied is %v", name, copied)
		}
		if want := uint64(len(bytes.Join(records, nil))); c.Total != want {
			t.Errorf("%s: %d bytes counted, there are %d", name, c.Total, want)
		}
		got, err := UnpackInPlace(block, kernel)
		if err != nil || !equal(got, records) {
			t.Errorf("%s: %v", name, err)
		}
		for i, item := range got {
			if cap(item) != len(item) {
				t.Errorf("%s: item %d reaches into the next", name, i)
			}
		}
		c.Free()
	}
	for _, gap := range []int{0, 1, 2, 5000} {
		list := randomItems(r, 20, 1000)
		for i := range list {
			list[i] = append(list[i], 'x') // no record is empty
		}
		records, memory := place(t, host, gap, list...)
		check(fmt.Sprint("gaps of ", gap), records, true)
		check("some of them", records[3:9], true)
		check("one", records[5:6], true)
		check("left out", [][]byte{records[1], records[7], records[8]}, true)
		check("out of order", [][]byte{records[1], records[0]}, true)
		check("twice the same", [][]byte{records[1], records[1]}, true)
		check("one outside", [][]byte{records[0], []byte("outside")}, false)
		check("one empty", [][]byte{{}, records[0], {}}, true)
		memory.Free()
	}
	check("outside", [][]byte{[]byte("a"), []byte("b")}, false)
	_, other := arenaPair(t, 1<<20) // the arena of an earlier process
	stale, memory := place(t, other, 1, []byte("old"), []byte("older"))
	check("another arena", stale, false)
	memory.Free()
	if host.Used() != 0 {
		t.Errorf("%d regions are used", host.Used())
	}
}

// A record larger than the arena is never taken to be in it, whatever its address.
func TestRecordLargerThanTheArena(t *testing.T) {
	memory := make([]byte, 1000)
	a := &Arena{Own: memory[400:500], ownAt: 4096}
	for from := range memory {
		for _, to := range []int{from + 1, from + 99, from + 100, from + 101, 1000} {
			if to > len(memory) {
				continue
			}
			offset, ok := a.OffsetOf(memory[from:to])
			if inside := from >= 400 && to <= 500; ok != inside || ok && offset != uint64(4096+from-400) {
				t.Errorf("bytes %d to %d lie at %d: %v", from, to, offset, ok)
			}
		}
	}
}

// overTheWire returns a message as the other side decodes it.
func overTheWire[M proto.Message](t testing.TB, message M) M {
	t.Helper()
	data, err := proto.Marshal(message)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	read := message.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(data, read); err != nil {
		t.Fatalf("unmarshal: %v", err)
	}
	return read
}

func TestBlockRoundTrip(t *testing.T) {
	check := func(items [][]byte) bool {
		got, err := UnpackCopy(overTheWire(t, Pack(new(Carrier), items)), nil)
		if err != nil || len(got) != len(items) {
			return false
		}
		for i := range items {
			if !bytes.Equal(got[i], items[i]) {
				return false
			}
		}
		return true
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

// Appending to an item must not overwrite the next one.
func TestBlockItemsAreApart(t *testing.T) {
	items, err := UnpackCopy(Pack(new(Carrier), [][]byte{[]byte("ab"), []byte("cd")}), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(items[0], 'X')
	if string(items[1]) != "cd" {
		t.Errorf("the second item is %q", items[1])
	}
}

// FuzzUnpackBlock does the same for the opposite direction.
func FuzzUnpackBlock(f *testing.F) {
	f.Add([]byte("abc"), []byte{1, 2})
	f.Fuzz(func(t *testing.T, data, lengths []byte) {
		block := &kernelpb.Block{Inline: data}
		for _, n := range lengths {
			block.Lengths = append(block.Lengths, uint32(n))
		}
		items, err := UnpackCopy(block, nil)
		if err != nil {
			return
		}
		if joined := bytes.Join(items, nil); !bytes.Equal(joined, data) {
			t.Errorf("%q became %q", data, joined)
		}
	})
}

func TestTakeNoArena(t *testing.T) {
	for _, value := range []string{"", "x", "2", "-1", "3:8192", "99999999999999999999", "12345"} {
		if a, err := openArena(value); err == nil {
			t.Errorf("%q: %+v", value, a)
		}
	}
}

// arenaPair returns both ends of an arena.
func arenaPair(t testing.TB, size uint64) (host, kernel *Arena) {
	t.Helper()
	host, file, err := MakeArena(size)
	if err != nil {
		t.Skip("there is no shared memory here")
	}
	t.Cleanup(host.Close)
	defer file.Close()
	if kernel, err = MapArena(int(file.Fd()), size, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kernel.Close)
	return host, kernel
}

// place copies records into the arena, with the given number of bytes between them.
func place(t *testing.T, a *Arena, gap int, records ...[]byte) ([][]byte, *Memory) {
	t.Helper()
	memory := a.Alloc(len(bytes.Join(records, nil)) + gap*len(records))
	if memory == nil {
		t.Fatal("no memory left")
	}
	free, placed := memory.Bytes(), make([][]byte, len(records))
	for i, record := range records {
		n := copy(free, record)
		placed[i] = free[:n:n]
		free = free[n+gap:]
	}
	return placed, memory
}
