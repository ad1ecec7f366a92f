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

// guardGrace is how long a worker may take to clean up after the end of its
// orchestrator, before its guard does it.
const guardGrace = time.Second

// guard is the life of the process between an orchestrator and a worker. It starts the
// worker and waits for its end, or for that of the orchestrator. Whichever comes first,
// and however it comes, it then kills everything below it: as the child subreaper above
// the worker it gets every process that the worker leaves, daemons without the job's
// environment included. It returns the exit status.
//
// The worker could not do that alone: when it is killed together with the orchestrator,
// nobody is left who knows its descendants.
func guard(label, socketDir string) int {
	proc.SurviveStopSignals()
	proc.CloseOnExec(wire.Descriptor, wire.GuardDescriptor)
	_ = proc.BecomeSubreaper() // without it, process groups must do
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
	connection.Close() // its end must be the worker's alone
	if err != nil {
		fmt.Fprintf(os.Stderr, "start worker: %v\n", err)
		return 2
	}
	_ = wire.SendPID(lifeline, worker.Pid())

	orphaned := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, lifeline) // nothing comes but the end
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

// removeSockets removes the worker's folder and, if the orchestrator, which would do
// that, is dead, the folder that the workers' folders are in. It goes with the last.
func removeSockets(socketDir string, parent int) {
	_ = os.RemoveAll(socketDir)
	if os.Getppid() != parent {
		_ = os.Remove(filepath.Dir(socketDir))
	}
}

// relay makes this process end as its worker did, so that the orchestrator can report
// it.
func relay(worker *proc.Process) int {
	select {
	case <-worker.Done():
	default:
		return 2 // it does not end
	}
	exit := worker.Exit()
	switch {
	case exit.Signal == syscall.SIGKILL:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Minute) // until it arrives
	case exit.Signal != 0:
		return 128 + int(exit.Signal)
	case exit.Code < 0:
		return 2
	}
	return exit.Code
}
