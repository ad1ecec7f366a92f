package orchestrator

import (
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
)

// Open files of a job: its own, including those of a worker being started, and for each
// worker its two connections and its parts.
const (
	ownFiles    = 32
	workerFiles = 8
)

// checkOpenFiles refuses a job that would run out of file descriptors halfway, where
// every failure looks different.
func checkOpenFiles(workers int) error {
	var limit unix.Rlimit
	need := uint64(ownFiles + workerFiles*max(1, workers))
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur >= need {
		return nil
	}
	return fault.OpenFiles.New("the open file limit is %d (ulimit -n), but a job with %s needs %d: raise the limit or use fewer workers",
		limit.Cur, counted(max(1, workers), "worker", "workers"), need)
}
