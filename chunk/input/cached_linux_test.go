package input

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/chunk/chunktest"
)

// TestReadCached: data that was just written is read from memory, and a read that is not
// possible returns 0 without an error.
func TestReadCached(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.jsonl")
	data := bytes.Repeat([]byte("0123456789\n"), 1000)
	chunktest.Write(t, path, data)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	n := readCached(file, buffer, 5000)
	if n == 0 {
		t.Log("the file system does not say what is in memory")
	}
	if !bytes.Equal(buffer[:n], data[5000:5000+n]) {
		t.Errorf("read %q", buffer[:n])
	}
	if n := readCached(file, buffer, int64(len(data))); n != 0 {
		t.Errorf("read %d bytes after the end", n)
	}
	if n := readCached(file, nil, 0); n != 0 {
		t.Errorf("read %d bytes into nothing", n)
	}
	if n := readCached(file, make([]byte, maxCached+1), 0); n != 0 {
		t.Errorf("read %d bytes at once", n)
	}
	file.Close()
	if n := readCached(file, buffer, 0); n != 0 {
		t.Errorf("read %d bytes of a closed file", n)
	}
}
