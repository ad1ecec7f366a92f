package gpu

import (
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// slurmVariables tell that a Slurm job has GPUs, the most specific first.
var slurmVariables = []string{
	"SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS", "SLURM_GPUS_PER_NODE",
	"SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
}

// checkScheduler rejects a Slurm job that has GPUs but no CUDA_VISIBLE_DEVICES, as
// happened after a restart of Slurm's controller: it would use GPUs of other jobs.
func checkScheduler(env func(string) (string, bool)) error {
	if name, value := slurmGPUs(env); inSlurm(env) && name != "" {
		return fault.GPUsHidden.New("this Slurm job has GPUs (%s=%s), but %s is not set, so gpurun cannot tell which of the node's GPUs belong to it: start gpurun with srun, or set %s",
			name, value, visibleVariable, visibleVariable)
	}
	return nil
}

// withoutGPUs reports whether a scheduler has given this job no GPUs. On nodes that do not confine
// jobs to their devices, the driver shows the GPUs of other jobs. Slurm hides them with an empty
// variable, with a word that matches none, or not at all.
func withoutGPUs(env func(string) (string, bool)) bool {
	name, _ := slurmGPUs(env)
	visible, _ := env(visibleVariable)
	visible = strings.TrimSpace(visible)
	return inSlurm(env) && name == "" && (visible == "" || visible == "NoDevFiles")
}

func inSlurm(env func(string) (string, bool)) bool {
	id, _ := env("SLURM_JOB_ID")
	return id != ""
}

// slurmGPUs returns the variable that tells that a Slurm job has GPUs; "" for none.
func slurmGPUs(env func(string) (string, bool)) (name, value string) {
	for _, name := range slurmVariables {
		if value, _ := env(name); value != "" && value != "0" {
			return name, value
		}
	}
	return "", ""
}
