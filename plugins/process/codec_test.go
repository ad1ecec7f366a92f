package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// randomFill returns the size of a batch, and a function that fills its results in every way that
// the contract allows.
func randomFill(seed, stream uint64) (n int, fill func(*plugins.Results)) {
	random := func() *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
	n = 1 + random().IntN(20)
	return n, func(results *plugins.Results) { fillRandom(random(), results) }
}

func fillRandom(r *rand.Rand, results *plugins.Results) {
	n := 1 + r.IntN(20)
	bytesOf := func() []byte {
		b := make([]byte, r.IntN(40))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	columns := r.IntN(4)
	for i := range n {
		switch choice := r.IntN(7); {
		case choice == 6:
			results.Raise(i, fault.KernelException.New("record %d raises", i).WithDetail("its trace").InStep("second.py"))
		case choice == 0:
			results.Unchanged(i)
		case choice == 1:
			results.Line(i, bytesOf())
		case choice == 2:
			results.Lines(i, bytesOf(), bytesOf(), bytesOf())
		case choice == 3:
			results.Drop(i)
		case choice == 4 || columns == 0:
			results.Fail(i, strings.ToValidUTF8(string(bytesOf()), "?"))
		}
	}
	for c := range columns {
		name, width := fmt.Sprint("column", c), r.IntN(5)
		shapes := [5][]int{4: {2, 1, 2}}
		length := n * max(width, 1)
		switch r.IntN(6) {
		case 0:
			values := make([]float32, length)
			for i := range values {
				values[i] = math.Float32frombits(r.Uint32())
			}
			results.Column(plugins.Float32s(name, width, values))
		case 1:
			values := make([]float64, length)
			for i := range values {
				values[i] = math.Float64frombits(r.Uint64())
			}
			results.Column(plugins.Float64s(name, width, values))
		case 2:
			values := make([]int64, length)
			for i := range values {
				values[i] = int64(r.Uint64())
			}
			results.Column(plugins.Int64s(name, width, values).Shaped(shapes[width]...))
		case 3:
			values := make([]bool, n)
			for i := range values {
				values[i] = r.IntN(2) == 0
			}
			results.Column(plugins.Bools(name, values))
		case 4:
			values := make([]string, n)
			for i := range values {
				values[i] = string(bytesOf())
			}
			results.Column(plugins.Strings(name, values))
		case 5:
			values := make([][]byte, n)
			for i := range values {
				values[i] = bytesOf()
			}
			results.Column(plugins.JSON(name, values))
		}
	}
}

// shown returns everything in results as text.
func shown(r *plugins.Results) string {
	var b strings.Builder
	for i := range r.Len() {
		result := r.At(i)
		fmt.Fprintf(&b, "%s %q %q", result.Verdict, result.Lines, result.Message)
		if result.Raised != nil {
			fmt.Fprintf(&b, " raised %+v", *fault.As(result.Raised))
		}
		for _, c := range r.ColumnList() {
			fmt.Fprintf(&b, " %s=%s", c.Name, c.AppendValue(nil, i))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func encoded(info plugins.Info) []byte {
	data, _ := json.Marshal(info)
	return data
}

func TestInfoRoundTrip(t *testing.T) {
	info := plugins.Info{Name: "n", Version: "v", BatchSize: 7, InFlight: 3, Ahead: 9, NeedsGPU: true, Frameworks: []string{"torch"}, MinMemory: 1 << 40, CanTrim: true, MaxWorkers: 2, RecordTimeout: 600 * time.Second}
	if got, err := unpackInfo(encoded(info)); err != nil || !reflect.DeepEqual(got, info) {
		t.Errorf("info %+v, %v", got, err)
	}
	if got, err := unpackInfo(nil); err != nil || !reflect.DeepEqual(got, plugins.Info{}) {
		t.Errorf("no info is %+v, %v", got, err)
	}
}

// Invalid preferences are harmless.
func TestInfoBounds(t *testing.T) {
	for _, test := range []struct{ in, want plugins.Info }{
		{plugins.Info{BatchSize: -1, InFlight: -5, Ahead: -1, RecordTimeout: -1}, plugins.Info{}},
		{plugins.Info{BatchSize: math.MaxInt, InFlight: math.MaxInt, Ahead: math.MaxInt}, plugins.Info{BatchSize: math.MaxInt32, InFlight: 64, Ahead: 128}},
	} {
		if got, err := unpackInfo(encoded(test.in)); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%+v became %+v", test.in, got)
		}
	}
	for _, hostile := range []string{`{"batch_size":1e30}`, `{"inputs":1}`, `[]`, `x`} {
		if _, err := unpackInfo([]byte(hostile)); fault.KindOf(err) != fault.Incompatible {
			t.Errorf("%s: %v", hostile, err)
		}
	}
}

func TestUnpackFailure(t *testing.T) {
	if unpackFailure(nil, fault.Batch) != nil {
		t.Error("no failure is one")
	}
	err := unpackFailure([]byte(`{"kind":"oom","message":"no memory","detail":"trace"}`), fault.Batch)
	if e := fault.As(err); e == nil || e.Kind != fault.OOM || e.Message != "no memory" || e.Detail != "trace" {
		t.Errorf("failure %#v", err)
	}
	for _, failure := range []string{`{}`, `{"kind":"unknown"}`, `{"kind":"of another version"}`, `{"kind":6}`, `x`} {
		if err := unpackFailure([]byte(failure), fault.Batch); fault.KindOf(err) != fault.Batch {
			t.Errorf("%s became %v", failure, err)
		}
	}
}

// Invalid UTF-8, for example in a message that quotes a record, must not break the
// connection.
func TestInvalidUTF8(t *testing.T) {
	bad := "bad \xff\xfe"
	proxy, end := Loopback(filler{fill: func(r *plugins.Results) error {
		if r.Len() == 1 {
			return plugins.Detail(fmt.Errorf("%s", bad), bad)
		}
		r.Fail(0, bad)
		r.Column(plugins.Strings(bad, []string{bad, bad}))
		return nil
	}})
	defer end()
	got, err := plugins.Call(t.Context(), proxy, records(2))
	if err != nil {
		t.Fatal(err)
	}
	if message := got.At(0).Message; message != "bad \ufffd" {
		t.Errorf("message %q", message)
	}
	_, err = plugins.Call(t.Context(), proxy, records(1))
	if e := fault.As(err); e == nil || e.Message != "bad \ufffd" || e.Detail != "bad \ufffd" {
		t.Errorf("failure %+v", e)
	}
}

// replied returns the reply of a kernel's end that has an arena or none.
func replied(t testing.TB, a *protocol.Arena, n int, fill func(*plugins.Results)) *kernelpb.ProcessReply {
	t.Helper()
	proxy, end := loopback(filler{fill: func(r *plugins.Results) error { fill(r); return nil }}, nil, a)
	defer end()
	stream, err := proxy.link.rpc.Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&kernelpb.ProcessRequest{Sequence: 1, Records: protocol.Pack(new(protocol.Carrier), make([][]byte, n))}); err != nil {
		t.Fatal(err)
	}
	reply, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// A kernel cannot change its results by writing to its half of the arena after it has
// answered: the worker uses copies.
func TestResultsAreCopies(t *testing.T) {
	host, kernel := arenaPair(t, 4<<20)
	const n = 4096 // short values would be inline
	reply := replied(t, kernel, n, func(sent *plugins.Results) {
		sent.Line(0, bytes.Repeat([]byte("1"), n))
		sent.Column(plugins.Float32s("f", 1, make([]float32, n)))
		sent.Column(plugins.Float64s("g", 0, make([]float64, n)))
		sent.Column(plugins.Int64s("i", 0, make([]int64, n)))
		sent.Column(plugins.Bools("b", make([]bool, n)))
		sent.Column(plugins.Strings("s", slices.Repeat([]string{"x"}, n)))
		sent.Column(plugins.JSON("j", slices.Repeat([][]byte{[]byte("[2]")}, n)))
	})
	shared := 0
	for _, c := range reply.Columns {
		if c.Values.Offset != nil {
			shared++
		}
	}
	if reply.Lines.Offset == nil || shared != 6 {
		t.Fatalf("only %d of 6 columns lie in the arena", shared)
	}
	got := plugins.NewResults(n)
	got.Defer()(unpackReply(host, reply, got))
	if err := got.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := shown(got)
	for i := range kernel.Own {
		kernel.Own[i] ^= 0x55
	}
	if after := shown(got); after != before {
		t.Error("the results have changed")
	}
}

// Without an arena, even a valid offset is rejected.
func TestOffsetWithoutArena(t *testing.T) {
	_, kernel := arenaPair(t, 1<<20)
	reply := replied(t, kernel, 1, func(r *plugins.Results) { r.Line(0, bytes.Repeat([]byte("1"), 1<<14)) })
	if reply.Lines.Offset == nil {
		t.Fatal("the line is not in the arena")
	}
	results := plugins.NewResults(1)
	results.Defer()((&batches{link: new(link)}).fill(results, reply))
	if err := results.Wait(t.Context()); fault.KindOf(err) != fault.Batch || !strings.Contains(err.Error(), "shared memory, but there is none") {
		t.Errorf("error: %v", err)
	}
}

// oneItem returns a block with one item.
func oneItem(data []byte) *kernelpb.Block {
	return protocol.Pack(new(protocol.Carrier), [][]byte{data})
}

// hostileReplies are invalid answers to a batch of 3.
var hostileReplies = []struct {
	name  string
	reply *kernelpb.ProcessReply
	want  string
}{
	{"empty", &kernelpb.ProcessReply{}, "0 results for a batch of 3"},
	{"too few", &kernelpb.ProcessReply{Verdicts: []byte{1, 1}}, "2 results for a batch of 3"},
	{"too many", &kernelpb.ProcessReply{Verdicts: []byte{1, 1, 1, 1}}, "4 results for a batch of 3"},
	{"no verdict", &kernelpb.ProcessReply{Verdicts: []byte{1, 0, 1}}, "record 1 of the batch no verdict"},
	{"unknown verdict", &kernelpb.ProcessReply{Verdicts: []byte{1, 1, 99}}, "record 2 of the batch verdict 99"},
	{"no lines", &kernelpb.ProcessReply{Verdicts: []byte{2, 1, 1}}, "fewer lines"},
	{"counts without lines", &kernelpb.ProcessReply{Verdicts: []byte{2, 1, 1}, LineCounts: []uint32{1}}, "fewer lines"},
	{"a count of none", &kernelpb.ProcessReply{Verdicts: []byte{2, 1, 1}, LineCounts: []uint32{0}}, "fewer lines"},
	{"a huge count", &kernelpb.ProcessReply{Verdicts: []byte{2, 1, 1}, LineCounts: []uint32{math.MaxUint32}, Lines: protocol.Pack(new(protocol.Carrier), [][]byte{{1}})}, "fewer lines"},
	{"more lines", &kernelpb.ProcessReply{Verdicts: []byte{1, 1, 1}, Lines: protocol.Pack(new(protocol.Carrier), [][]byte{{1}})}, "more lines or messages"},
	{"more counts", &kernelpb.ProcessReply{Verdicts: []byte{1, 1, 1}, LineCounts: []uint32{0}}, "more lines or messages"},
	{"no message", &kernelpb.ProcessReply{Verdicts: []byte{5, 5, 1}, Failures: [][]byte{[]byte(`{"kind":"record","message":"one"}`)}}, "fewer messages"},
	{"more messages", &kernelpb.ProcessReply{Verdicts: []byte{1, 1, 1}, Failures: [][]byte{[]byte(`{"kind":"record","message":"one"}`)}}, "more lines or messages"},
	{"length past the bytes", &kernelpb.ProcessReply{Verdicts: []byte{2, 1, 1}, LineCounts: []uint32{1}, Lines: &kernelpb.Block{Inline: []byte("ab"), Lengths: []uint32{3}}}, "ends past its bytes"},
	{"huge length", &kernelpb.ProcessReply{Verdicts: []byte{2, 1, 1}, LineCounts: []uint32{1}, Lines: &kernelpb.Block{Lengths: []uint32{math.MaxUint32}}}, "ends past its bytes"},
	{"bytes left", &kernelpb.ProcessReply{Verdicts: []byte{2, 1, 1}, LineCounts: []uint32{1}, Lines: &kernelpb.Block{Inline: []byte("abc"), Lengths: []uint32{1}}}, "2 bytes more"},
	{"columns without one", &kernelpb.ProcessReply{Verdicts: []byte{1, 3, 1}}, "record 1 of the batch the verdict columns, but returned no column"},
	{"column without values", &kernelpb.ProcessReply{Verdicts: []byte{3, 3, 3}, Columns: []*kernelpb.Column{{Name: "c"}}}, "this version does not know its type"},
	{"column without name", &kernelpb.ProcessReply{Verdicts: []byte{3, 3, 3}, Columns: []*kernelpb.Column{{Kind: "bool", Values: oneItem(make([]byte, 3))}}}, "invalid name or width"},
	{"column too short", &kernelpb.ProcessReply{Verdicts: []byte{3, 3, 3}, Columns: []*kernelpb.Column{{Name: "c", Kind: "bool", Values: oneItem(make([]byte, 2))}}}, "values for 2 records"},
	{"column of broken numbers", &kernelpb.ProcessReply{Verdicts: []byte{3, 3, 3}, Columns: []*kernelpb.Column{{Name: "c", Kind: "float32", Values: oneItem(make([]byte, 13))}}}, "not a whole number"},
	{"column of huge width", &kernelpb.ProcessReply{Verdicts: []byte{3, 3, 3}, Columns: []*kernelpb.Column{{Name: "c", Width: math.MaxUint32, Kind: "int64", Values: oneItem(make([]byte, 24))}}}, "invalid name or width"},
	{"column of large width", &kernelpb.ProcessReply{Verdicts: []byte{3, 3, 3}, Columns: []*kernelpb.Column{{Name: "c", Width: math.MaxInt32, Kind: "int64", Values: oneItem(make([]byte, 24))}}}, "not a multiple of its width"},
	{"a record that the device fails", &kernelpb.ProcessReply{Verdicts: []byte{5, 1, 1}, Failures: [][]byte{[]byte(`{"kind":"oom","message":"no memory"}`)}}, "no memory"},
	{"column of broken strings", &kernelpb.ProcessReply{Verdicts: []byte{3, 3, 3}, Columns: []*kernelpb.Column{{Name: "c", Kind: plugins.KindString, Values: &kernelpb.Block{Lengths: []uint32{1, 1, 1}}}}}, "ends past its bytes"},
}

func TestHostileReplies(t *testing.T) {
	for _, test := range hostileReplies {
		t.Run(test.name, func(t *testing.T) {
			results := plugins.NewResults(3)
			results.Defer()((&batches{link: new(link)}).fill(results, overTheWire(t, test.reply)))
			if err := results.Wait(t.Context()); fault.KindOf(err) != fault.Batch && test.name != "column too short" && fault.KindOf(err) != fault.OOM || !strings.Contains(err.Error(), test.want) {
				t.Errorf("kind %s: %v", fault.KindOf(err), err)
			}
		})
	}
}

// FuzzUnpackReply: whatever a kernel sends, the worker gets an error or results that it
// can read.
func FuzzUnpackReply(f *testing.F) {
	host, kernel := arenaPair(f, 4*smallestRegion)
	for _, reply := range hostileOffsets(4 * smallestRegion) {
		data, err := proto.Marshal(reply)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint8(1))
	}
	for _, test := range hostileReplies {
		data, err := proto.Marshal(test.reply)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint8(3))
	}
	for seed := range uint64(20) {
		n, fill := randomFill(seed, 2)
		for _, a := range []*protocol.Arena{nil, kernel} {
			data, err := proto.Marshal(replied(f, a, n, fill))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, uint8(n))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, n uint8) {
		var reply kernelpb.ProcessReply
		if proto.Unmarshal(data, &reply) != nil {
			return
		}
		results := plugins.NewResults(int(n))
		results.Defer()((&batches{link: &link{arena: host}}).fill(results, &reply))
		if err := results.Wait(t.Context()); err != nil {
			if fault.As(err) == nil {
				t.Errorf("not classified: %v", err)
			}
			return
		}
		for i := range results.Len() {
			if v := results.At(i); v.Verdict < plugins.Unchanged || v.Verdict > plugins.Failed || v.Verdict == plugins.Lines && len(v.Lines) == 0 {
				t.Errorf("record %d: %+v", i, v)
			}
		}
		_ = shown(results)
	})
}

// hostileOffsets are answers to a batch of 1 with invalid offsets. The kernel's half of
// the arena ends at end, the worker's at end/2.
func hostileOffsets(end uint64) map[string]*kernelpb.ProcessReply {
	half := end / 2
	lines := func(offset uint64, gaps []int64, lengths ...uint32) *kernelpb.ProcessReply {
		return &kernelpb.ProcessReply{
			Verdicts: []byte{byte(plugins.Lines)}, LineCounts: []uint32{uint32(len(lengths))},
			Lines: &kernelpb.Block{Offset: &offset, Lengths: lengths, Gaps: gaps},
		}
	}
	column := func(offset uint64, size, width uint32) *kernelpb.ProcessReply {
		return &kernelpb.ProcessReply{Verdicts: []byte{byte(plugins.Columns)}, Columns: []*kernelpb.Column{{
			Name: "c", Width: width, Kind: "int64", Values: &kernelpb.Block{Offset: &offset, Lengths: []uint32{size}},
		}}}
	}
	strings := func(offset uint64, lengths ...uint32) *kernelpb.ProcessReply {
		return &kernelpb.ProcessReply{Verdicts: []byte{byte(plugins.Columns)}, Columns: []*kernelpb.Column{{
			Name: "c", Kind: plugins.KindString, Values: &kernelpb.Block{Offset: &offset, Lengths: lengths},
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
	host, _ := arenaPair(t, protocol.SmallArenaSize)
	for name, reply := range hostileOffsets(protocol.SmallArenaSize) {
		t.Run(name, func(t *testing.T) {
			for _, a := range []*protocol.Arena{host, nil} {
				results := plugins.NewResults(1)
				results.Defer()((&batches{link: &link{arena: a}}).fill(results, overTheWire(t, reply)))
				err := results.Wait(t.Context())
				if kind := fault.KindOf(err); kind != fault.Batch && kind != fault.Incompatible || !strings.Contains(err.Error(), "kernel ") {
					t.Errorf("of kind %s: %v", fault.KindOf(err), err)
				}
			}
		})
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
