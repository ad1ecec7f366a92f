package worker

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
)

// guardGrace is how long a worker may take to clean up after its orchestrator exits before
// the guard does it.
const guardGrace = time.Second

// guard is the life of the process between an orchestrator and a worker. It starts the
// worker and waits until the worker or the orchestrator exits. Whichever comes first, for
// whatever reason, it then kills everything below it: as child subreaper it inherits every
// process that the worker orphans, including daemons that cleared the job's environment. It
// returns the exit status.
//
// The worker cannot do this alone: when it is killed together with the orchestrator, no
// process remains that knows its descendants.
func guard(label, socketDir string) int {
	proc.SurviveStopSignals()
	proc.CloseOnExec(wire.Descriptor, wire.GuardDescriptor)
	_ = proc.BecomeSubreaper() // if this fails, killing process groups has to suffice
	parent := os.Getppid()
	lifeline := os.NewFile(wire.GuardDescriptor, "orchestrator")
	connection := os.NewFile(wire.Descriptor, "connection")
	if lifeline == nil || connection == nil {
		return 2
	}
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	worker, err := proc.Start(proc.Command{
		Path: self, Args: []string{wire.WorkerArgument, label},
		Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: []*os.File{connection},
	})
	connection.Close() // only the worker may hold it open
	if err != nil {
		fmt.Fprintf(os.Stderr, "start worker: %v\n", err)
		return 2
	}
	_ = wire.SendPID(lifeline, worker.Pid())

	orphaned := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, lifeline) // carries no data, only the end of the orchestrator
		close(orphaned)
	}()
	select {
	case <-worker.Done():
	case <-orphaned:
		select {
		case <-worker.Done():
		case <-time.After(guardGrace):
		}
	}
	proc.KillChildren()
	removeSockets(socketDir, parent)
	return relay(worker)
}

// removeSockets removes the worker's socket folder. If the orchestrator is dead and cannot
// do it, it also removes the parent folder, which succeeds for the last worker.
func removeSockets(socketDir string, parent int) {
	_ = os.RemoveAll(socketDir)
	if os.Getppid() != parent {
		_ = os.Remove(filepath.Dir(socketDir))
	}
}

// relay makes this process exit the way its worker did, so that the orchestrator can report
// it.
func relay(worker *proc.Process) int {
	if !worker.Exited() {
		return 2
	}
	exit := worker.Exit()
	switch {
	case exit.Signal == syscall.SIGKILL:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Minute) // until the signal arrives
	case exit.Signal != 0:
		return 128 + int(exit.Signal)
	case exit.Code < 0:
		return 2
	}
	return exit.Code
}
