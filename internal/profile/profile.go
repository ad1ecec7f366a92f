// Package profile takes CPU profiles of every process of a job: the orchestrator,
// its workers and their kernels. Set GPURUN_PPROF to a folder, run a job, and look
// at the files with go tool pprof.
package profile

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// Start starts a CPU profile of this process if GPURUN_PPROF is set; role is the prefix of
// the file's name. stop writes the profile, so a killed process leaves none.
func Start(role string) (stop func()) {
	dir := os.Getenv("GPURUN_PPROF")
	if dir == "" {
		return func() {}
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", role, os.Getpid()))
	file, err := os.Create(path)
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "gpurun: profile: %v\n", err)
		return func() {}
	}
	return func() {
		pprof.StopCPUProfile()
		file.Close()
	}
}
