package plugins

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/gpurun/gpurun/internal/fault"
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
	for _, size := range []int{0, 10, inlineBelow / 8, inlineBelow, 100_000} {
		for _, n := range []int{0, 1, 8, 40} {
			host, kernel := arenaPair(t, 64<<20)
			items := randomItems(r, n, size)
			c := &carrier{arena: host, least: inlineBelow}
			block := overTheWire(t, packBlock(c, items))
			total := len(bytes.Join(items, nil))
			if shared := block.Offset != nil; shared != (total >= inlineBelow) {
				t.Errorf("%d bytes are shared: %v", total, shared)
			}
			got, err := unpackInPlace(block, kernel)
			if err != nil || !equal(got, items) {
				t.Errorf("%d items of %d bytes: %v", n, size, err)
			}
			if c.free(); host.space.Blocks() != 0 {
				t.Errorf("%d regions are used", host.space.Blocks())
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
	check := func(name string, batch Batch, inPlace bool) {
		t.Helper()
		c := &carrier{arena: host}
		block := overTheWire(t, packShared(c, batch.records))
		if copied := len(c.held) > 0 || block.Offset == nil; copied == inPlace {
			t.Errorf("%s: copied is %v", name, copied)
		}
		if want := uint64(len(bytes.Join(batch.records, nil))); c.total != want {
			t.Errorf("%s: %d bytes counted, there are %d", name, c.total, want)
		}
		got, err := unpackInPlace(block, kernel)
		if err != nil || !equal(got, batch.records) {
			t.Errorf("%s: %v", name, err)
		}
		for i, item := range got {
			if cap(item) != len(item) {
				t.Errorf("%s: item %d reaches into the next", name, i)
			}
		}
		c.free()
	}
	for _, gap := range []int{0, 1, 2, 5000} {
		list := randomItems(r, 20, 1000)
		for i := range list {
			list[i] = append(list[i], 'x') // no record is empty
		}
		batch, memory := place(t, host, gap, list...)
		check(fmt.Sprint("gaps of ", gap), batch, true)
		check("some of them", NewBatch(batch.records[3:9]), true)
		check("one", NewBatch(batch.records[5:6]), true)
		check("left out", NewBatch([][]byte{batch.records[1], batch.records[7], batch.records[8]}), true)
		check("out of order", NewBatch([][]byte{batch.records[1], batch.records[0]}), true)
		check("twice the same", NewBatch([][]byte{batch.records[1], batch.records[1]}), true)
		check("one outside", NewBatch([][]byte{batch.records[0], []byte("outside")}), false)
		check("one empty", NewBatch([][]byte{{}, batch.records[0], {}}), true)
		memory.Free()
	}
	check("outside", NewBatch([][]byte{[]byte("a"), []byte("b")}), false)
	_, other := arenaPair(t, 1<<20) // the arena of an earlier process
	stale, memory := place(t, other, 1, []byte("old"), []byte("older"))
	check("another arena", stale, false)
	memory.Free()
	if host.space.Blocks() != 0 {
		t.Errorf("%d regions are used", host.space.Blocks())
	}
}

// A record larger than the arena is never taken to be in it, whatever its address.
func TestRecordLargerThanTheArena(t *testing.T) {
	memory := make([]byte, 1000)
	a := &arena{own: memory[400:500], ownAt: 4096}
	for from := range memory {
		for _, to := range []int{from + 1, from + 99, from + 100, from + 101, 1000} {
			if to > len(memory) {
				continue
			}
			offset, ok := a.offsetOf(memory[from:to])
			if inside := from >= 400 && to <= 500; ok != inside || ok && offset != uint64(4096+from-400) {
				t.Errorf("bytes %d to %d lie at %d: %v", from, to, offset, ok)
			}
		}
	}
}

func TestReplyRoundTripThroughTheArena(t *testing.T) {
	host, kernel := arenaPair(t, smallArenaSize)
	for seed := range uint64(500) {
		sent := randomResults(rand.New(rand.NewPCG(seed, 4)))
		if sent.complete(nil); sent.err != nil {
			t.Fatalf("seed %d: %v", seed, sent.err)
		}
		c := &carrier{arena: kernel}
		reply := overTheWire(t, packReply(c, seed, blank(sent.Len()), sent))
		got := NewResults(sent.Len())
		if err := unpackReply(host, reply, got); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got.complete(nil)
		c.free()
		clear(kernel.own[:1<<20]) // whose place it was
		if a, b := shown(sent), shown(got); a != b {
			t.Fatalf("seed %d: sent\n%s\ngot\n%s", seed, a, b)
		}
	}
	if kernel.space.Blocks() != 0 {
		t.Errorf("%d regions are used", kernel.space.Blocks())
	}
}

// A kernel cannot change its results by writing to its half of the arena after it has
// answered: the worker uses copies.
func TestResultsAreCopies(t *testing.T) {
	host, kernel := arenaPair(t, 1<<20)
	sent := NewResults(3)
	sent.Line(0, []byte(`{"line":1}`))
	sent.Column(Float32s("f", 1, []float32{1, 2, 3}))
	sent.Column(Float64s("g", 0, []float64{1, 2, 3}))
	sent.Column(Int64s("i", 0, []int64{1, 2, 3}))
	sent.Column(Bools("b", []bool{true, false, true}))
	sent.Column(Strings("s", []string{"x", "y", "z"}))
	sent.Column(JSON("j", [][]byte{[]byte("1"), []byte("[2]"), []byte("{}")}))
	sent.complete(nil)
	reply := packReply(&carrier{arena: kernel}, 1, blank(3), sent)
	if reply.Lines.Offset == nil || kernel.space.Blocks() != 7 {
		t.Fatalf("only %d of 7 lie in the arena", kernel.space.Blocks())
	}
	got := NewResults(3)
	if err := unpackReply(host, reply, got); err != nil {
		t.Fatal(err)
	}
	got.complete(nil)
	before := shown(got)
	for i := range kernel.own {
		kernel.own[i] ^= 0x55
	}
	if after := shown(got); after != before || before != shown(sent) {
		t.Errorf("it became\n%s\ninstead of\n%s", after, before)
	}
}

// hostileOffsets are answers to a batch of 1 with invalid offsets. The kernel's half of
// the arena ends at end, the worker's at end/2.
func hostileOffsets(end uint64) map[string]*kernelpb.ProcessReply {
	half := end / 2
	lines := func(offset uint64, gaps []int64, lengths ...uint32) *kernelpb.ProcessReply {
		return &kernelpb.ProcessReply{
			Verdicts: []byte{byte(Lines)}, LineCounts: []uint32{uint32(len(lengths))},
			Lines: &kernelpb.Block{Offset: &offset, Lengths: lengths, Gaps: gaps},
		}
	}
	column := func(offset uint64, size, width uint32) *kernelpb.ProcessReply {
		return &kernelpb.ProcessReply{Verdicts: []byte{byte(Columns)}, Columns: []*kernelpb.Column{{
			Name: "c", Width: width, Kind: "int64", Values: &kernelpb.Block{Offset: &offset, Lengths: []uint32{size}},
		}}}
	}
	strings := func(offset uint64, lengths ...uint32) *kernelpb.ProcessReply {
		return &kernelpb.ProcessReply{Verdicts: []byte{byte(Columns)}, Columns: []*kernelpb.Column{{
			Name: "c", Kind: KindString, Values: &kernelpb.Block{Offset: &offset, Lengths: lengths},
		}}}
	}
	many := make([]uint32, 1<<16)
	for i := range many {
		many[i] = math.MaxUint32
	}
	shaped := func(shape ...uint32) *kernelpb.ProcessReply {
		reply := column(half, 32, 4)
		reply.Columns[0].Shape = shape
		return reply
	}
	three := column(half, 400<<20, 50<<20)
	three.Columns = append(three.Columns, three.Columns[0], three.Columns[0])
	return map[string]*kernelpb.ProcessReply{
		"at the end":                  lines(end, nil, 1),
		"across the end":              lines(end-1, nil, 2),
		"past the end":                lines(end+1, nil, 0),
		"largest offset":              lines(math.MaxUint64, nil, 1),
		"largest offset, no bytes":    lines(math.MaxUint64, nil, 0),
		"the worker's half":           lines(0, nil, 1),
		"across the halves":           lines(half-1, nil, 2),
		"longer than all":             lines(half, nil, math.MaxUint32),
		"sum longer than all":         lines(half, nil, many...),
		"gaps":                        lines(half, []int64{0, 0}, 1, 1),
		"too few gaps":                lines(half, []int64{1}, 1, 1, 1),
		"a gap without items":         lines(half, []int64{1}),
		"column at the end":           column(end, 8, 0),
		"column across the end":       column(end-7, 8, 0),
		"column in the other half":    column(0, 8, 0),
		"column of largest size":      column(half, math.MaxUint32, 0),
		"column of largest offset":    column(math.MaxUint64, math.MaxUint32, 0),
		"column of half a value":      column(half, 12, 0),
		"column of too many values":   column(half, 16, 0),
		"columns over the limit":      three,
		"one dimension":               shaped(4),
		"a dimension of none":         shaped(2, 0),
		"dimensions of more values":   shaped(3, 2),
		"dimensions without end":      shaped(math.MaxUint32, math.MaxUint32, math.MaxUint32),
		"too many dimensions":         shaped(slices.Repeat([]uint32{1}, 33)...),
		"strings at the end":          strings(end, 1),
		"strings in the other half":   strings(1, 1),
		"strings longer than all":     strings(half, math.MaxUint32),
		"strings, more than the rows": strings(half, 1, 1),
	}
}

func TestHostileOffsets(t *testing.T) {
	host, _ := arenaPair(t, smallArenaSize)
	for name, reply := range hostileOffsets(host.size()) {
		t.Run(name, func(t *testing.T) {
			for _, a := range []*arena{host, nil} {
				results := NewResults(1)
				results.complete((&batches{link: &link{arena: a}}).fill(results, overTheWire(t, reply)))
				if kind := fault.KindOf(results.err); kind != fault.Batch && kind != fault.Incompatible || !strings.Contains(results.err.Error(), "kernel ") {
					t.Errorf("of kind %s: %v", fault.KindOf(results.err), results.err)
				}
			}
		})
	}
}

// Without an arena, even a valid offset is rejected.
func TestOffsetWithoutArena(t *testing.T) {
	_, kernel := arenaPair(t, 1<<20)
	sent := NewResults(1)
	sent.Line(0, []byte("{}"))
	sent.complete(nil)
	reply := packReply(&carrier{arena: kernel}, 1, blank(1), sent)
	results := NewResults(1)
	results.complete((&batches{link: new(link)}).fill(results, reply))
	if err := results.err; fault.KindOf(err) != fault.Batch || !strings.Contains(err.Error(), "shared memory, but there is none") {
		t.Errorf("error: %v", err)
	}
}

// FuzzUnpackRequest: whatever a request contains, the kernel's side gets an error or a
// batch that it can read.
func FuzzUnpackRequest(f *testing.F) {
	host, kernel := arenaPair(f, 4*minRegion)
	for i := range host.own {
		host.own[i] = byte(i)
	}
	names := []string{"a", "b"}
	seed := func(records *kernelpb.Block, spans ...uint32) {
		data, err := proto.Marshal(&kernelpb.ProcessRequest{Records: records, Spans: spans})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	zero, last := uint64(0), uint64(len(host.own)-2)
	seed(&kernelpb.Block{Offset: &zero, Lengths: []uint32{3, 4}, Gaps: []int64{2, -4}}, 0, 1, 2, 1, 0, 0, 1, 3)
	seed(&kernelpb.Block{Offset: &last, Lengths: []uint32{3}}, 0, 1, 2, 1)
	seed(&kernelpb.Block{Inline: []byte("abcd"), Lengths: []uint32{4}}, 3, 1, 4, 0)
	seed(&kernelpb.Block{Inline: []byte("abcd"), Lengths: []uint32{4}}, 3, 2, math.MaxUint32, math.MaxUint32)
	seed(&kernelpb.Block{Inline: []byte("abcd"), Lengths: []uint32{1, 1}, Gaps: []int64{2, 2}}, 1, 1)
	s := newServer(nil, kernel)
	f.Fuzz(func(t *testing.T, data []byte) {
		var request kernelpb.ProcessRequest
		if proto.Unmarshal(data, &request) != nil {
			return
		}
		batch, err := s.unpackBatch(&request, names)
		if err != nil {
			return
		}
		sum := byte(0)
		for i := range batch.Len() {
			for _, b := range batch.Record(i) {
				sum += b
			}
			for k, name := range names {
				value, present := batch.Member(i, name)
				if len(request.Spans) > 0 && present != (request.Spans[2*(2*i+k)+1] > 0) || !present && value != nil {
					t.Errorf("member %s of record %d: %q, %v", name, i, value, present)
				}
			}
		}
		_ = sum
	})
}
