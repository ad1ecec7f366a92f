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
		"asked for a number":  {env: []string{"SLURM_JOB_ID=7", "SLURM_GPUS_ON_NODE=2"}, gpus: "all", want: "SLURM_GPUS_ON_NODE=2"},
		"asked per node":      {env: []string{"SLURM_JOB_ID=7", "SLURM_GPUS_PER_NODE=h200:2"}, gpus: "all", want: "SLURM_GPUS_PER_NODE=h200:2"},
		"was given some":      {env: []string{"SLURM_JOB_ID=7", "SLURM_JOB_GPUS=2,3", "SLURM_GPUS=2"}, gpus: "all", want: "SLURM_JOB_GPUS=2,3"},
		"names GPUs":          {env: []string{"SLURM_JOB_ID=7", "SLURM_JOB_GPUS=2,3"}, gpus: "0", want: "CUDA_VISIBLE_DEVICES is not set"},
		"has them":            {env: []string{"SLURM_JOB_ID=7", "SLURM_JOB_GPUS=2,3", "CUDA_VISIBLE_DEVICES=0,1"}, gpus: "all"},
		"on the CPU":          {env: []string{"SLURM_JOB_ID=7", "SLURM_JOB_GPUS=2,3"}, gpus: "cpu:2"},
		"asked for none":      {env: []string{"SLURM_JOB_ID=7", "SLURM_GPUS=0", "SLURM_JOB_GPUS="}, gpus: "all"},
		"no Slurm":            {env: []string{"SLURM_GPUS=2"}, gpus: "all"},
		"Slurm without a GPU": {env: []string{"SLURM_JOB_ID=7"}, gpus: "all"},
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
