package codec

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// linked returns a frame that the library of LZ4 has written, whose blocks refer to each other, and its content.
func linked(t testing.TB) (frame, content []byte) {
	t.Helper()
	frame, err := os.ReadFile("testdata/linked.lz4")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6000 {
		content = fmt.Appendf(content, "the same words again and again, %d\n", i%7)
	}
	return frame, content
}

func TestLZ4Frame(t *testing.T) {
	frame, content := linked(t)
	got, err := LZ4Frame(make([]byte, len(content)), frame)
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if int64(len(content)) > LZ4Most(frame) {
		t.Errorf("%d bytes are more than %d", len(content), LZ4Most(frame))
	}
	if _, err := LZ4Frame(make([]byte, len(content)-1), frame); err == nil {
		t.Error("a buffer that is too short is filled")
	}
	for cut := range frame {
		if got, err := LZ4Frame(make([]byte, len(content)), frame[:cut]); err == nil {
			t.Errorf("%d bytes of the frame give %d", cut, len(got))
		}
	}
}

// TestZstdMost: nothing that compresses better exists than what one byte repeats.
func TestZstdMost(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, 1 << 10, 1 << 20, 40 << 20} {
		if packed := w.EncodeAll(make([]byte, size), nil); ZstdMost(packed) < int64(size) {
			t.Errorf("%d bytes became %d, which may stand for %d", size, len(packed), ZstdMost(packed))
		}
	}
}

// FuzzLZ4Frame: whatever a frame holds, decoding writes no more than its size.
func FuzzLZ4Frame(f *testing.F) {
	frame, _ := linked(f)
	f.Add(frame, uint32(210000))
	f.Add([]byte("\x04\x22\x4d\x18\x40\x40\xc0\x05\x00\x00\x80hello\x00\x00\x00\x00"), uint32(5))
	f.Fuzz(func(t *testing.T, packed []byte, size uint32) {
		size %= 1 << 20
		if got, err := LZ4Frame(make([]byte, size), packed); err == nil && len(got) > int(size) {
			t.Errorf("%d bytes instead of %d", len(got), size)
		}
	})
}
