package python_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// dumped returns the mappings of the shared memory that a core dump of the process would
// include. It fails if there is no such mapping at all.
const dumped = `
import os, re
def dumped(pid):
    mappings = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", open("/proc/%d/smaps" % pid).read())
    shared = [m for m in mappings if "gpurun-python" in m]
    assert shared, "no shared memory"
    return len([m for m in shared if " dd" not in re.search("VmFlags:(.*)", m).group(1)])
`

// A crash of either process must not write the sparse shared memory, 16 GiB, into a core
// file.
func TestSharedMemoryIsNotDumped(t *testing.T) {
	k := start(t, dumped+"def process(batch): return {'self': [dumped(os.getpid())], 'host': [dumped(os.getppid())]}")
	expect(t, k, []string{"{}"}, []string{"self=0 host=0"})
}

// Schedulers signal every process of a job: the interpreter and its computation survive,
// also during startup.
func TestInterpreterSurvivesStopSignals(t *testing.T) {
	k := start(t, `
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    os.kill(os.getpid(), number)
def process(batch):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(os.getpid(), number)
    return {"x": [1 for _ in batch]}
`)
	expect(t, k, []string{"{}"}, []string{"x=1"})
	early := filepath.Join(t.TempDir(), "python")
	script := "#!/bin/sh\nkill -TERM $$; kill -INT $$; kill -HUP $$\nexec python3 \"$@\"\n"
	if err := os.WriteFile(early, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	k = start(t, "def process(batch): return {'x': [1 for _ in batch]}", interpreter(early))
	expect(t, k, []string{"{}"}, []string{"x=1"})
}

// An interpreter that was killed during startup is not a broken installation.
func TestInterpreterKilledWhileItStarts(t *testing.T) {
	needPython(t)
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV} {
		path := filepath.Join(t.TempDir(), "python")
		if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nkill -%d $$\n", s), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := try(t, "def process(batch): return {}", interpreter(path))
		switch s {
		case syscall.SIGKILL:
			if fault.KindOf(err) != fault.Crash || !strings.Contains(err.Error(), "was killed by SIGKILL during startup") || !strings.Contains(err.Error(), "out of memory") {
				t.Errorf("%s: %v", fault.KindOf(err), err)
			}
		case syscall.SIGSEGV:
			if fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), "crashed during startup: killed by SIGSEGV") {
				t.Errorf("%s: %v", fault.KindOf(err), err)
			}
		}
	}
}
