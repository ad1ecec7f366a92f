package parquet

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// damagedText is how much of a damaged file's lines is read.
const damagedText = 4 << 20

// checkDamaged reads bytes that may be damaged. It must neither panic nor use much memory;
// what it returns are JSON objects.
func checkDamaged(t testing.TB, data []byte) {
	t.Helper()
	text, _ := readSome(data, damagedText)
	for line := range strings.Lines(text) {
		if strings.HasSuffix(line, "\n") && (line[0] != '{' || !json.Valid([]byte(line))) {
			t.Fatalf("not an object: %.300q", line)
		}
	}
}

// damageFiles are the files that are damaged byte by byte.
var damageFiles = []string{"nested", "nested-v2", "plain", "gzip", "brotli", "lz4", "encodings", "duckdb", "int96", "scalars"}

// TestDamagedBytes changes bytes of a file in turn, and cuts it off: everywhere with
// make test-all, which takes minutes, else at every 13th byte.
func TestDamagedBytes(t *testing.T) {
	for _, name := range damageFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join("testdata", name+".parquet"))
			if err != nil {
				t.Fatal(err)
			}
			step := 13
			if os.Getenv("GPURUN_TEST_ALL") != "" {
				step = 1
			}
			for i := 0; i < len(data); i += step {
				before := data[i]
				for k, value := range []byte{before ^ 1, before ^ 0x80, 0, 0xff} {
					if k < 2 || value != before && value != before^1 && value != before^0x80 {
						data[i] = value
						checkDamaged(t, data)
					}
				}
				data[i] = before
				if i/step%7 == 0 {
					checkDamaged(t, data[:i])
				}
			}
		})
	}
}

// TestDamagedMemory: damage does not make the reader allocate much more than the intact
// file needs.
func TestDamagedMemory(t *testing.T) {
	data, err := os.ReadFile("testdata/pages.parquet")
	if err != nil {
		t.Fatal(err)
	}
	most := uint64(0)
	for i := 0; i < len(data); i += 101 {
		before := data[i]
		data[i] ^= 0xff
		var from, to runtime.MemStats
		runtime.ReadMemStats(&from)
		checkDamaged(t, data)
		runtime.ReadMemStats(&to)
		most = max(most, to.TotalAlloc-from.TotalAlloc)
		data[i] = before
	}
	if most > 256<<20 {
		t.Errorf("%d MiB were allocated for a file of %d KiB", most>>20, len(data)>>10)
	}
}

// FuzzFile: whatever the bytes, reading ends, without a panic. A few bytes can stand for
// millions of nulls, which would leave no time for other files.
func FuzzFile(f *testing.F) {
	maxPageValues = 1 << 16
	for _, name := range damageFiles {
		data, err := os.ReadFile(filepath.Join("testdata", name+".parquet"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkDamaged(t, data) })
}
