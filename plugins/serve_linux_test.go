package plugins

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

func init() {
	if os.Getenv("GPURUN_TEST_COLLECTS") != "" {
		before := residentMemory()
		relaxGC()
		grown := residentMemory() - before
		runtime.GC()
		var start, end runtime.MemStats
		runtime.ReadMemStats(&start)
		var kept []byte
		for range 200 { // 20 MB of garbage
			kept = make([]byte, 100<<10)
		}
		runtime.KeepAlive(kept)
		runtime.ReadMemStats(&end)
		fmt.Println(grown, end.NumGC-start.NumGC)
		os.Exit(0)
	}
}

// Collections become rare without using memory. The test needs a fresh process, as for a
// kernel: in memory that was used before, the floor would have to be cleared, and would
// then take up its full size.
func TestCollectLessOften(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GPURUN_TEST_COLLECTS=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var grown, collections int
	if _, err := fmt.Sscan(string(out), &grown, &collections); err != nil {
		t.Fatalf("%v: %q", err, out)
	}
	if grown > 16<<20 {
		t.Errorf("it takes %d bytes", grown)
	}
	if collections > 1 {
		t.Errorf("%d collections for 20 MB", collections)
	}
}

// residentMemory returns the resident memory of this process.
func residentMemory() int {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		panic(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		panic(err)
	}
	return pages * os.Getpagesize()
}
