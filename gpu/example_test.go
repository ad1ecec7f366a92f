package gpu_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
)

// A program selects devices, gives each worker two of them, and starts the worker with the
// variables that pin it. gputest simulates the machine; without Options.NVML, the driver
// answers.
func Example() {
	options := gpu.Options{NVML: gputest.EightGPUs(), Env: gputest.NoEnv}
	selection, err := gpu.ParseSelection("0-3")
	if err != nil {
		fmt.Println(err)
		return
	}
	inventory, err := gpu.Select(context.Background(), selection, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	groups, err := gpu.Group(inventory.Devices, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for worker, group := range groups {
		fmt.Printf("worker %d: %v\n%s\n", worker, group, strings.Join(gpu.PinEnv(group), "\n"))
	}
	// Output:
	// worker 0: [GPU 0 GPU 1]
	// CUDA_VISIBLE_DEVICES=GPU-00000000-0000-4000-8000-000000000000,GPU-00000001-0000-4000-8000-000000000000
	// worker 1: [GPU 2 GPU 3]
	// CUDA_VISIBLE_DEVICES=GPU-00000002-0000-4000-8000-000000000000,GPU-00000003-0000-4000-8000-000000000000
}

// An inherited CUDA_VISIBLE_DEVICES is a boundary: devices are counted within it.
func ExampleSelect() {
	granted := func(name string) (string, bool) { return "4,5,6", name == "CUDA_VISIBLE_DEVICES" }
	selection, err := gpu.ParseSelection("0,2")
	if err != nil {
		fmt.Println(err)
		return
	}
	inventory, err := gpu.Select(context.Background(), selection, gpu.Options{NVML: gputest.EightGPUs(), Env: granted})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, device := range inventory.Devices {
		fmt.Println(device.Token)
	}
	// Output:
	// 4
	// 6
}
