package exec

import (
	"fmt"
	"os"
	"testing"

	"github.com/gpurun/gpurun/plugins"
)

// The kernel finds out by observation whether being blocked reading proves that a program
// is in step. It never misjudges a well-behaved program, even on a loaded machine: such a
// program would then wait at every batch.
func TestProgramsAreObserved(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		command string
		batches int
		opaque  bool
	}{
		"a filter":     {"cat", 1000, false},
		"a shell":      {"while read a; do echo $a; done", 300, false},
		"a pipeline":   {"cat | cat", 300, false},
		"a Go program": {self + " unruly", 300, false},
		"slow records": {self + " unruly -delay 2ms", 10, false},
		"reads ahead":  {self + " unruly -pool 64 -delay 2ms", 10, true},
		"after one":    {"cat | " + self + " unruly -delay 2ms", 10, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := startProgram(plugins.ExecConfig{Command: test.command, Mode: ModeStream})
			if err != nil {
				t.Fatal(err)
			}
			defer p.kill()
			records := make([][]byte, 16)
			for i := range records {
				records[i] = fmt.Appendf(nil, `{"id":%d}`, i)
			}
			for range test.batches {
				if _, err := p.exchange(plugins.NewBatch(records), nil); err != nil {
					t.Fatal(err)
				}
			}
			if p.inStep.opaque != test.opaque || p.inStep.unsure != test.opaque {
				t.Errorf("%+v", p.inStep)
			}
		})
	}
}
