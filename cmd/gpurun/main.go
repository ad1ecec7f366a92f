// Command gpurun runs a compute kernel over a JSON Lines file on every GPU of the
// machine. See gpurun --help.
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
	worker.Init(builtin.Kernels()) // does not return in worker and kernel processes
	stop := profile.Start("orchestrator")
	code := Main()
	stop()
	os.Exit(code)
}

// Main runs the command and returns its exit status.
func Main() int {
	_ = proc.BecomeSubreaper() // adopt the orphans of killed workers
	proc.SurviveClosedStderr()
	proc.StopWithParent()
	root := newRoot()
	root.SetArgs(joinDurations(os.Args[1:]))
	cmd, err := root.ExecuteC()
	err = withHint(err)
	if wantsEvents(cmd) {
		writeErrorEvent(os.Stderr, err)
	} else if text := message(err); text != "" {
		fmt.Fprintln(os.Stderr, "gpurun: "+text)
	}
	return exitCode(err)
}
