package plugins

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

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

// blank returns a batch whose records do not occur in any results.
func blank(n int) Batch { return NewBatch(make([][]byte, n)) }

func TestBlockRoundTrip(t *testing.T) {
	check := func(items [][]byte) bool {
		got, err := unpackCopy(overTheWire(t, packBlock(new(carrier), items)), nil)
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
	items, err := unpackCopy(packBlock(new(carrier), [][]byte{[]byte("ab"), []byte("cd")}), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(items[0], 'X')
	if string(items[1]) != "cd" {
		t.Errorf("the second item is %q", items[1])
	}
}

// randomResults fills results in every way that the contract allows.
func randomResults(r *rand.Rand) *Results {
	n := 1 + r.IntN(20)
	results := NewResults(n)
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
			results.Column(Float32s(name, width, values))
		case 1:
			values := make([]float64, length)
			for i := range values {
				values[i] = math.Float64frombits(r.Uint64())
			}
			results.Column(Float64s(name, width, values))
		case 2:
			values := make([]int64, length)
			for i := range values {
				values[i] = int64(r.Uint64())
			}
			results.Column(Int64s(name, width, values).Shaped(shapes[width]...))
		case 3:
			values := make([]bool, n)
			for i := range values {
				values[i] = r.IntN(2) == 0
			}
			results.Column(Bools(name, values))
		case 4:
			values := make([]string, n)
			for i := range values {
				values[i] = string(bytesOf())
			}
			results.Column(Strings(name, values))
		case 5:
			values := make([][]byte, n)
			for i := range values {
				values[i] = bytesOf()
			}
			results.Column(JSON(name, values))
		}
	}
	return results
}

func TestReplyRoundTrip(t *testing.T) {
	for seed := range uint64(500) {
		sent := randomResults(rand.New(rand.NewPCG(seed, 1)))
		if sent.complete(nil); sent.err != nil {
			t.Fatalf("seed %d: %v", seed, sent.err)
		}
		got := NewResults(sent.Len())
		reply := overTheWire(t, packReply(new(carrier), seed, blank(sent.Len()), sent))
		if err := unpackReply(nil, reply, got); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got.complete(nil); got.err != nil {
			t.Fatalf("seed %d: %v", seed, got.err)
		}
		if reply.GetSequence() != seed {
			t.Errorf("seed %d: sequence %d", seed, reply.GetSequence())
		}
		if a, b := shown(sent), shown(got); a != b {
			t.Fatalf("seed %d: sent\n%s\ngot\n%s", seed, a, b)
		}
	}
}

// shown returns everything in results as text.
func shown(r *Results) string {
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

func TestInfoRoundTrip(t *testing.T) {
	info := Info{Name: "n", Version: "v", BatchSize: 7, InFlight: 3, Ahead: 9, NeedsGPU: true, Frameworks: []string{"torch"}, MinMemory: 1 << 40, CanTrim: true, MaxWorkers: 2, RecordTimeout: 600 * time.Second}
	if got, err := unpackInfo(encode(info)); err != nil || !reflect.DeepEqual(got, info) {
		t.Errorf("info %+v, %v", got, err)
	}
	if got, err := unpackInfo(nil); err != nil || !reflect.DeepEqual(got, Info{}) {
		t.Errorf("no info is %+v, %v", got, err)
	}
}

// Invalid preferences are harmless.
func TestInfoBounds(t *testing.T) {
	for _, test := range []struct{ in, want Info }{
		{Info{BatchSize: -1, InFlight: -5, Ahead: -1, RecordTimeout: -1}, Info{}},
		{Info{BatchSize: math.MaxInt, InFlight: math.MaxInt, Ahead: math.MaxInt}, Info{BatchSize: math.MaxInt32, InFlight: maxInFlight, Ahead: maxAhead}},
	} {
		if got, err := unpackInfo(encode(test.in)); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%+v became %+v", test.in, got)
		}
	}
	for _, hostile := range []string{`{"batch_size":1e30}`, `{"inputs":1}`, `[]`, `x`} {
		if _, err := unpackInfo([]byte(hostile)); fault.KindOf(err) != fault.Incompatible {
			t.Errorf("%s: %v", hostile, err)
		}
	}
}

func TestFailureRoundTrip(t *testing.T) {
	if packFailure(nil) != nil || unpackFailure(nil, fault.Batch) != nil {
		t.Error("no failure is one")
	}
	err := unpackFailure(packFailure(Detail(OutOfMemory(fmt.Errorf("no memory")), "trace")), fault.Batch)
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
	r := NewResults(2)
	r.Fail(0, bad)
	r.Column(Strings(bad, []string{bad, bad}))
	r.complete(nil)
	got := NewResults(2)
	if err := unpackReply(nil, overTheWire(t, packReply(new(carrier), 1, blank(2), r)), got); err != nil {
		t.Fatal(err)
	}
	if message := got.At(0).Message; message != "bad \ufffd" {
		t.Errorf("message %q", message)
	}
	if e := parseFailure(packFailure(Detail(fmt.Errorf("%s", bad), bad))); e.Message != "bad \ufffd" || e.Detail != "bad \ufffd" {
		t.Errorf("failure %+v", e)
	}
}

// oneItem returns a block with one item.
func oneItem(data []byte) *kernelpb.Block { return packBlock(new(carrier), [][]byte{data}) }

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
	{"a huge count", &kernelpb.ProcessReply{Verdicts: []byte{2, 1, 1}, LineCounts: []uint32{math.MaxUint32}, Lines: packBlock(new(carrier), [][]byte{{1}})}, "fewer lines"},
	{"more lines", &kernelpb.ProcessReply{Verdicts: []byte{1, 1, 1}, Lines: packBlock(new(carrier), [][]byte{{1}})}, "more lines or messages"},
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
	{"column of broken strings", &kernelpb.ProcessReply{Verdicts: []byte{3, 3, 3}, Columns: []*kernelpb.Column{{Name: "c", Kind: KindString, Values: &kernelpb.Block{Lengths: []uint32{1, 1, 1}}}}}, "ends past its bytes"},
}

func TestHostileReplies(t *testing.T) {
	for _, test := range hostileReplies {
		t.Run(test.name, func(t *testing.T) {
			results := NewResults(3)
			results.complete((&batches{link: new(link)}).fill(results, overTheWire(t, test.reply)))
			if err := results.err; fault.KindOf(err) != fault.Batch && test.name != "column too short" && fault.KindOf(err) != fault.OOM || !strings.Contains(err.Error(), test.want) {
				t.Errorf("kind %s: %v", fault.KindOf(err), err)
			}
		})
	}
}

// FuzzUnpackReply: whatever a kernel sends, the worker gets an error or results that it
// can read.
func FuzzUnpackReply(f *testing.F) {
	host, kernel := arenaPair(f, 4*minRegion)
	for _, reply := range hostileOffsets(host.size()) {
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
		r := randomResults(rand.New(rand.NewPCG(seed, 2)))
		r.complete(nil)
		for _, c := range []*carrier{{}, {arena: kernel}} {
			data, err := proto.Marshal(packReply(c, seed, blank(r.Len()), r))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, uint8(r.Len()))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, n uint8) {
		var reply kernelpb.ProcessReply
		if proto.Unmarshal(data, &reply) != nil {
			return
		}
		results := NewResults(int(n))
		results.complete((&batches{link: &link{arena: host}}).fill(results, &reply))
		if results.err != nil {
			if fault.As(results.err) == nil {
				t.Errorf("not classified: %v", results.err)
			}
			return
		}
		for i := range results.Len() {
			if v := results.At(i); v.Verdict < Unchanged || v.Verdict > Failed || v.Verdict == Lines && len(v.Lines) == 0 {
				t.Errorf("record %d: %+v", i, v)
			}
		}
		_ = shown(results)
	})
}

// FuzzUnpackBlock does the same for the opposite direction.
func FuzzUnpackBlock(f *testing.F) {
	f.Add([]byte("abc"), []byte{1, 2})
	f.Fuzz(func(t *testing.T, data, lengths []byte) {
		block := &kernelpb.Block{Inline: data}
		for _, n := range lengths {
			block.Lengths = append(block.Lengths, uint32(n))
		}
		items, err := unpackCopy(block, nil)
		if err != nil {
			return
		}
		if joined := bytes.Join(items, nil); !bytes.Equal(joined, data) {
			t.Errorf("%q became %q", data, joined)
		}
	})
}
