package commit

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/chunk/chunktest"
)

// TestCopyFrom covers sizes around the Mapping and write sizes.
func TestCopyFrom(t *testing.T) {
	r := chunktest.Seeded(t)
	data := make([]byte, copyWindow+copyBytes+1)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	for _, size := range []int{1, 4095, 4096, 4097, copyBytes - 1, copyBytes + 1, copyWindow - 1, copyWindow, copyWindow + 1, len(data)} {
		part, out := copyPair(t, data[:size])
		if n, err := copyFrom(out, part, int64(size)); err != nil || n != int64(size) {
			t.Fatalf("%d bytes, %v; want %d", n, err, size)
		}
		got, err := os.ReadFile(out.Name())
		chunktest.Must(t, err)
		if !bytes.Equal(got, append([]byte("before"), data[:size]...)) {
			t.Errorf("%d bytes were not copied correctly", size)
		}
	}
}

// TestCopyFromShrunk: a part that is truncated during the copy causes an error, not a
// crash.
func TestCopyFromShrunk(t *testing.T) {
	part, out := copyPair(t, make([]byte, 1<<20))
	chunktest.Must(t, os.Truncate(part.Name(), 300<<10))
	if n, err := copyFrom(out, part, 1<<20); err == nil || n > 512<<10 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// copyPair returns a part and a file with some content to append to.
func copyPair(t *testing.T, data []byte) (part, out *os.File) {
	dir := t.TempDir()
	chunktest.Write(t, filepath.Join(dir, "part"), data)
	part, err := os.Open(filepath.Join(dir, "part"))
	chunktest.Must(t, err)
	t.Cleanup(func() { part.Close() })
	out, err = os.Create(filepath.Join(dir, "out"))
	chunktest.Must(t, err)
	t.Cleanup(func() { out.Close() })
	_, err = out.WriteString("before")
	chunktest.Must(t, err)
	return part, out
}
