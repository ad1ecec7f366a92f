package gpu

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// A Slurm job that requested GPUs has CUDA_VISIBLE_DEVICES. Without it, the job's GPUs are
// unknown, and using all would take other jobs' GPUs.
func TestSlurmJobWithoutVisibleDevicesTakesNoGPU(t *testing.T) {
	for name, test := range map[string]struct {
		env  []string
		gpus string
		want string // of the error; "": none
	}{
		"asked for a number": {env: []string{"SLURM_JOB_ID=7", "SLURM_GPUS_ON_NODE=2"}, gpus: "all", want: "SLURM_GPUS_ON_NODE=2"},
		"asked per node":     {env: []string{"SLURM_JOB_ID=7", "SLURM_GPUS_PER_NODE=h200:2"}, gpus: "all", want: "SLURM_GPUS_PER_NODE=h200:2"},
		"was given some":     {env: []string{"SLURM_JOB_ID=7", "SLURM_JOB_GPUS=2,3", "SLURM_GPUS=2"}, gpus: "all", want: "SLURM_JOB_GPUS=2,3"},
		"names GPUs":         {env: []string{"SLURM_JOB_ID=7", "SLURM_JOB_GPUS=2,3"}, gpus: "0", want: "CUDA_VISIBLE_DEVICES is not set"},
		"has them":           {env: []string{"SLURM_JOB_ID=7", "SLURM_JOB_GPUS=2,3", "CUDA_VISIBLE_DEVICES=0,1"}, gpus: "all"},
		"on the CPU":         {env: []string{"SLURM_JOB_ID=7", "SLURM_JOB_GPUS=2,3"}, gpus: "cpu:2"},
		"no Slurm":           {env: []string{"SLURM_GPUS=2"}, gpus: "all"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Select(t.Context(), mustParse(t, test.gpus), options(newFake(t, same(4)...), test.env...))
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantFault(t, err, fault.NoDevice, test.want)
			if !strings.Contains(err.Error(), "srun") {
				t.Errorf("%v: does not say what to do", err)
			}
		})
	}
}

// A Slurm job that was given no GPUs uses the CPU and says so. GPUs that the driver shows
// nevertheless belong to other jobs.
func TestSlurmJobWithoutGPUsUsesTheCPU(t *testing.T) {
	for name, env := range map[string][]string{
		"asked for nothing": {"SLURM_JOB_ID=7"},
		"asked for none":    {"SLURM_JOB_ID=7", "SLURM_GPUS=0", "SLURM_JOB_GPUS="},
		"hidden":            {"SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES="},
		"hidden by a word":  {"SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=NoDevFiles"},
	} {
		t.Run(name, func(t *testing.T) {
			inventory, err := Select(t.Context(), mustParse(t, "all"), options(newFake(t, same(4)...), env...))
			if err != nil || inventory.Devices[0].Kind != CPU || !strings.Contains(inventory.Note, "this Slurm job has no GPUs: using the CPU") {
				t.Errorf("%+v, %v", inventory, err)
			}
			_, err = Select(t.Context(), mustParse(t, "0"), options(newFake(t, same(4)...), env...))
			wantFault(t, err, fault.NoDevice, "this Slurm job has no GPUs")
		})
	}
	t.Run("named by the user", func(t *testing.T) {
		inventory, err := Select(t.Context(), mustParse(t, "all"), options(newFake(t, same(4)...), "SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=1,2"))
		if err != nil || len(inventory.Devices) != 2 || inventory.Devices[0].Kind != GPU {
			t.Errorf("%+v, %v", inventory, err)
		}
	})
}
