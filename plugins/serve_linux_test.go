package plugins

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// Collections become rare, and no memory is used for that.
func TestCollectLessOften(t *testing.T) {
	before := residentMemory(t)
	collectLessOften()
	if grown := residentMemory(t) - before; grown > 16<<20 {
		t.Errorf("it takes %d bytes", grown)
	}
	runtime.GC()
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	var kept []byte
	for range 200 { // 20 MB of garbage
		kept = make([]byte, 100<<10)
	}
	runtime.KeepAlive(kept)
	runtime.ReadMemStats(&end)
	if n := end.NumGC - start.NumGC; n > 1 {
		t.Errorf("%d collections for 20 MB", n)
	}
}

// residentMemory is this process's memory.
func residentMemory(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
