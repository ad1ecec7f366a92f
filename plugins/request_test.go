package plugins

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// FuzzUnpackRequest: whatever a request contains, the kernel's side gets an error or a
// batch that it can read.
func FuzzUnpackRequest(f *testing.F) {
	host, kernel := arenaPair(f, 16<<10)
	for i := range host.Own {
		host.Own[i] = byte(i)
	}
	names := []string{"a", "b"}
	seed := func(records *kernelpb.Block, spans ...uint32) {
		data, err := proto.Marshal(&kernelpb.ProcessRequest{Records: records, Spans: spans})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	zero, last := uint64(0), uint64(len(host.Own)-2)
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

// A message that does not fit is an error and never a panic.
func TestFetchedIsValidated(t *testing.T) {
	const smallArena = 1 << 30
	_, kernel := arenaPair(t, smallArena)
	batch := NewBatch([][]byte{[]byte("1"), []byte("2")})
	zero := uint64(0)
	const half = smallArena / 2
	at := func(gaps []int64, lengths ...uint32) *kernelpb.Block {
		return &kernelpb.Block{Offset: &zero, Gaps: gaps, Lengths: lengths}
	}
	for name, files := range map[string]*kernelpb.Block{
		"no files":        nil,
		"too few":         at([]int64{0}, 1),
		"fewer lengths":   at([]int64{0, 0}, 1),
		"fewer gaps":      at([]int64{1}, 1, 1),
		"outside":         at([]int64{0, 1 << 62}, 1, 1),
		"before the half": at([]int64{0, -2}, 1, 1),
		"the other half":  at([]int64{0, half}, 1, 1),
		"past the end":    at([]int64{0, half - 2}, 1, 2),
		"a short block":   {Inline: []byte("ab"), Lengths: []uint32{1, 2}},
		"one in a block":  {Inline: []byte("ab"), Lengths: []uint32{2}},
	} {
		if _, err := batch.withFetched([]*kernelpb.Fetched{{Files: files}}, kernel); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	good := []*kernelpb.Fetched{{Name: "a", Files: at([]int64{half - 1, -half}, 1, 0)}}
	if _, err := batch.withFetched(good, kernel); err != nil {
		t.Error(err)
	}
	if _, err := batch.withFetched(good, nil); err == nil {
		t.Error("accepted without shared memory")
	}
}

// arenaPair returns both ends of an arena.
func arenaPair(t testing.TB, size uint64) (host, kernel *protocol.Arena) {
	t.Helper()
	host, file, err := protocol.MakeArena(size)
	if err != nil {
		t.Skip("there is no shared memory here")
	}
	t.Cleanup(host.Close)
	defer file.Close()
	if kernel, err = protocol.MapArena(int(file.Fd()), size, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kernel.Close)
	return host, kernel
}
