package orchestrator_test

import (
	"fmt"
	"testing"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/orchestrator"
)

// A kernel that uses no device gets one CPU worker, whatever the machine has and the user
// selects, and also where there is no usable device.
func TestNoDevice(t *testing.T) {
	t.Parallel()
	hidden := func(name string) (string, bool) { return "", name == "CUDA_VISIBLE_DEVICES" }
	for name, test := range map[string]struct {
		options gpu.Options
		change  func(c *orchestrator.Config)
	}{
		"GPUs":         {gpu.Options{NVML: gputest.New(4), Env: gputest.NoEnv}, func(*orchestrator.Config) {}},
		"some":         {gpu.Options{NVML: gputest.New(4), Env: gputest.NoEnv}, func(c *orchestrator.Config) { c.Devices.GPUs = "1,2" }},
		"two for each": {gpu.Options{NVML: gputest.New(4), Env: gputest.NoEnv}, func(c *orchestrator.Config) { c.Devices.GPUsPerWorker = 2 }},
		"two on each":  {gpu.Options{NVML: gputest.New(4), Env: gputest.NoEnv}, func(c *orchestrator.Config) { c.Devices.WorkersPerGPU = 2 }},
		"none visible": {gpu.Options{NVML: gputest.New(4), Env: hidden}, func(*orchestrator.Config) {}},
		"CPUs":         {gpu.Options{CPUs: 8}, func(c *orchestrator.Config) { c.Devices.GPUs = "cpu:4" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, c := callsJob(t, numbered(100), 4)
			c.Devices.GPUs = "all"
			c.Kernel.Config = fmt.Appendf(nil, `{"Calls":%q,"NoDevice":true}`, d.join("calls"))
			test.change(&c)
			plan, err := orchestrator.MakePlan(t.Context(), orchestrator.WithDevices(c, test.options))
			if err != nil {
				t.Fatal(err)
			}
			if len(plan.Slots) != 1 || plan.Slots[0].Name != "CPU 0" || plan.Slots[0].Devices[0].Kind != gpu.CPU || len(plan.Notes) > 0 {
				t.Errorf("%+v %q", plan.Slots, plan.Notes)
			}
		})
	}
}
