package exec_test

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/exec"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// The last output of a failed program determines the kind of its failure.
func TestLastWords(t *testing.T) {
	python := func(exception string) string {
		return `printf '%s\n' 'Traceback (most recent call last):' '  File "score.py", line 2, in <module>' '` + exception + `' >&2; exit 1`
	}
	const oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB."
	for name, test := range map[string]struct {
		command string
		onCPU   bool
		kind    fault.Kind
	}{
		"out of memory":   {python(oom), false, fault.OOM},
		"lost":            {python("RuntimeError: CUDA error: uncorrectable ECC error encountered"), false, fault.Device},
		"no GPU":          {python("RuntimeError: No CUDA GPUs are available"), false, fault.Device},
		"no GPU on a CPU": {python("RuntimeError: No CUDA GPUs are available"), true, fault.Batch},
		"poisoned":        {python("RuntimeError: CUDA error: device-side assert triggered"), false, fault.Batch},
		"host memory":     {python("MemoryError"), false, fault.OOM},
		"plain":           {"echo no >&2; exit 3", false, fault.Batch},
		"silent":          {"exit 3", false, fault.Batch},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []string{exec.ModeStream, exec.ModeBatch, exec.ModePerRecord} {
				k := exec.New()
				device := plugins.Device{Threads: 2, GPU: !test.onCPU}
				if err := k.Open(t.Context(), device, config(t, resolve.ExecConfig{Command: "cat >/dev/null & " + test.command, Mode: mode})); err != nil {
					t.Fatal(err)
				}
				list, err := call(t, k, `{"a":1}`, `{"a":2}`)
				switch {
				case mode == exec.ModePerRecord && test.kind == fault.Batch: // fails only its record
					if err != nil || len(list) != 2 || !strings.HasPrefix(list[0], "failed: exec: the program ended") {
						t.Errorf("%s: %q, %v", mode, list, err)
					}
				case fault.KindOf(err) != test.kind || !strings.HasPrefix(err.Error(), "exec: the program ended"):
					t.Errorf("%s: %s: %v", mode, fault.KindOf(err), err)
				}
				_ = k.Close()
			}
		})
	}
}
