package gpu_test

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
)

// MemoryOf returns the memory of the GPUs that answer and reports the others.
func TestMemoryOfAHungCard(t *testing.T) {
	machine := gputest.New(3)
	world := gpu.Options{NVML: machine, Env: gputest.NoEnv}
	inventory, err := gpu.Discover(t.Context(), world)
	if err != nil {
		t.Fatal(err)
	}
	defer machine.HangCard(1)()
	var lines []string
	world.Timeout, world.Slow = time.Second, func(text string) { lines = append(lines, text) }
	all := gpu.MemoryOf(t.Context(), inventory.Devices, world)
	if all[0].Or(gpu.Memory{}).Total != 80*gputest.GiB || !all[1].IsZero() || all[2].IsZero() {
		t.Errorf("%+v", all)
	}
	if len(lines) != 1 || lines[0] != "the NVIDIA driver does not answer when asked for the memory of GPU 1" {
		t.Errorf("%q", lines)
	}
}
