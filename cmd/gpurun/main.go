// Command gpurun runs a compute kernel over a file of JSON lines on every GPU of
// the machine. See gpurun --help.
package main

import (
	"fmt"
	"os"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/profile"
	"github.com/gpurun/gpurun/plugins/builtin"
	"github.com/gpurun/gpurun/worker"
)

func main() {
	worker.Init(builtin.Kernels()) // does not return in workers and kernels
	stop := profile.Start("orchestrator")
	code := Main()
	stop()
	os.Exit(code)
}

// Main is the command; it returns the exit status.
func Main() int {
	_ = proc.BecomeSubreaper() // what a killed worker leaves comes to us
	proc.SurviveClosedStderr()
	cmd, err := newRoot().ExecuteC()
	err = adviseLimit(err)
	if wantsEvents(cmd) {
		writeErrorEvent(os.Stderr, err)
	} else if text := message(err); text != "" {
		fmt.Fprintln(os.Stderr, "gpurun: "+text)
	}
	return exitCode(err)
}
