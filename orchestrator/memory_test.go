package orchestrator_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/orchestrator"
)

// Framework memory reported by kernels is attributed to their GPU, summed over its
// workers, recorded in the job folder, and drops when the kernels are asked to trim.
func TestFrameworkMemory(t *testing.T) {
	d := newJobDir(t, strings.Repeat("{}\n", 20_000))
	config := onMachine(d, gputest.New(1), "test-hoarder")
	config.Devices.WorkersPerGPU = 2
	until := d.join("until")
	config.Kernel.Config = fmt.Appendf(nil, `{"Until":%q}`, until)
	control := &orchestrator.Control{}
	cached := make(chan uint64, 1_000_000)
	config.Control, config.Display.OnEvent = control, func(e orchestrator.Event) {
		if sample, ok := e.(orchestrator.DeviceSample); ok {
			if memory, known := sample.Framework.Get(); known && memory.Library == "torch" {
				cached <- memory.Cached
			}
		}
	}
	await := func(want uint64) {
		for deadline := time.After(time.Minute); ; {
			select {
			case got := <-cached:
				if got == want {
					return
				}
			case <-deadline:
				t.Errorf("%d bytes were never cached", want)
				return
			}
		}
	}
	go func() {
		defer os.WriteFile(until, nil, 0o666)
		await(2 * 100)
		for _, result := range control.Trim(t.Context()) {
			if result.Fault != nil {
				t.Errorf("%s: %v", result.Device, result.Fault)
			}
		}
		await(2 * 10)
	}()
	mustRun(t, d, config)
}
