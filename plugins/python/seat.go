package python

import (
	"os"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/resources"
)

// workerVariable identifies the worker that this process belongs to (wire.MarkVariable).
const workerVariable = "GPURUN_WORKER_MARK"

// takeSeat takes one of as many seats as there are cores, for a prepare process. All
// workers of a job share them: each has a share of the cores, but workers that are added
// later change the shares.
func takeSeat() (leave func(), ok bool) {
	job := proc.MarkOwner(os.Getenv(workerVariable))
	if job == "" {
		return func() {}, true
	}
	return proc.TakeSeat("gpurun-prepare-"+job, resources.Cores())
}
