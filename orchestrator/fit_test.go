package orchestrator_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

func slotNames(plan orchestrator.Plan) string {
	var names []string
	for i, slot := range plan.Slots {
		names = append(names, slot.Name)
		if slot.Number != i {
			names = append(names, fmt.Sprintf("(numbered %d)", slot.Number))
		}
	}
	return strings.Join(names, ", ")
}

// The kernel's needs are checked against every device before anything starts.
func TestKernelNeedsAndDevices(t *testing.T) {
	d := newJobDir(t, numbered(1000))
	machine := gputest.New(3)
	machine.Change(1, func(c *gputest.Card) {
		c.Sample.Memory = gpu.Some(gpu.Memory{Total: 16 * gputest.GiB, Free: 16 * gputest.GiB})
	})
	plan := func(needMiB, workers, group int, gpus string) (orchestrator.Plan, error) {
		config := onMachine(d, machine, "test-wishes")
		config.Kernel.Config = fmt.Appendf(nil, `{"min_memory":%d}`, needMiB<<20)
		config.Devices.WorkersPerGPU, config.Devices.GPUsPerWorker, config.Devices.GPUs = workers, group, gpus
		return orchestrator.MakePlan(t.Context(), config)
	}
	for name, test := range map[string]struct {
		need, workers, group int
		gpus                 string
		slots, note, error   string
	}{
		"fits all":         {need: 8 << 10, workers: 1, group: 1, gpus: "all", slots: "GPU 0, GPU 1, GPU 2"},
		"one is too small": {need: 24 << 10, workers: 1, group: 1, gpus: "all", slots: "GPU 0, GPU 2", note: "not used: kernel test-wishes needs 24576 MiB of GPU memory; GPU 1 has 15872 MiB available"},
		"twice on one":     {need: 10 << 10, workers: 2, group: 1, gpus: "0,1", slots: "GPU 0 #1, GPU 1 #1, GPU 0 #2", note: "GPU 1 #2 has 5632 MiB available"},
		"all too small":    {need: 100 << 10, workers: 1, group: 1, gpus: "all", error: "needs 102400 MiB of GPU memory; GPU 0 has 81408 MiB available, GPU 1"},
		"two for each":     {need: 100 << 10, workers: 1, group: 2, gpus: "0,2", slots: "GPU 0+2"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := plan(test.need, test.workers, test.group, test.gpus)
			if test.error != "" {
				wantFault(t, err, fault.Incompatible, test.error)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			notes := strings.Join(got.Notes, "; ")
			if slotNames(got) != test.slots || !strings.Contains(notes, test.note) || test.note == "" && notes != "" {
				t.Errorf("slots %s, notes %s, want %s, %s", slotNames(got), notes, test.slots, test.note)
			}
		})
	}
}

func TestAutoWorkers(t *testing.T) {
	d := newJobDir(t, numbered(1000))
	config := onMachine(d, gputest.New(1), "echo")
	config.Devices.WorkersPerGPU = orchestrator.AutoWorkers
	plan, err := orchestrator.MakePlan(t.Context(), config)
	if err != nil || len(plan.Slots) != 1 || plan.Scaling[0].Workers != 1 || plan.Scaling[0].Most != runtime.NumCPU() || plan.Chunks < 16*int64(runtime.NumCPU())*9/10 {
		t.Errorf("%d slots, %d chunks, %+v, %v", len(plan.Slots), plan.Chunks, plan.Scaling, err)
	}
	config.Kernel.Name, config.Kernel.Config = "test-wishes", fmt.Appendf(nil, `{"min_memory":%d}`, 60*gputest.GiB)
	if plan, err = orchestrator.MakePlan(t.Context(), config); err != nil || len(plan.Slots) != 1 {
		t.Errorf("60 of 80 GiB for each: %d slots, %v", len(plan.Slots), err)
	}
	config.Devices.WorkersPerGPU = -2
	_, err = orchestrator.MakePlan(t.Context(), config)
	wantFault(t, err, fault.Usage, "workers-per-gpu must be at least 1 or auto, not -2", "[bad-value workers-per-gpu]")
}

// With fewer chunks than workers, the devices with the most free memory get them.
func TestFewChunksGoToTheRoomiest(t *testing.T) {
	d := newJobDir(t, numbered(8))
	machine := gputest.New(3)
	machine.Change(0, func(c *gputest.Card) { c.Use(70) })
	config := onMachine(d, machine, "echo")
	plan, err := orchestrator.MakePlan(t.Context(), config)
	if err != nil || slotNames(plan) != "GPU 1, GPU 2" {
		t.Errorf("%s, %v", slotNames(plan), err)
	}
}

func TestUnknownProfile(t *testing.T) {
	d := newJobDir(t, numbered(1))
	config := d.config("echo")
	config.Devices.Profile = "laptop"
	_, err := orchestrator.MakePlan(t.Context(), config)
	wantFault(t, err, fault.Usage, "profile must be datacenter or workstation")
}
