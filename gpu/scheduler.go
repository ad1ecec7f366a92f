package gpu

import "github.com/gpurun/gpurun/internal/fault"

// slurmVariables tell that a Slurm job has GPUs, the most specific first.
var slurmVariables = []string{
	"SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS", "SLURM_GPUS_PER_NODE",
	"SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
}

// checkScheduler rejects a Slurm job that has GPUs but no CUDA_VISIBLE_DEVICES, as
// happened after a restart of Slurm's controller: it would use GPUs of other jobs.
func checkScheduler(env func(string) (string, bool)) error {
	if id, _ := env("SLURM_JOB_ID"); id == "" {
		return nil
	}
	for _, name := range slurmVariables {
		if value, _ := env(name); value != "" && value != "0" {
			return fault.New(fault.NoDevice,
				"this Slurm job has GPUs (%s=%s), but %s is not set, so gpurun cannot tell which of the node's GPUs belong to it: start gpurun with srun, or set %s",
				name, value, visibleVariable, visibleVariable).WithCode(fault.NoGPU, "")
		}
	}
	return nil
}
