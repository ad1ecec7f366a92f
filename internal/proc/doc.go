// Package proc owns child processes: each is the leader of a process group of
// its own, is started from a thread that lives as long as it does, and is never
// left behind.
//
//	p, err := proc.Start(proc.Command{Path: exe, DieWithParent: true})
//	<-p.Done()            // it ended, and what was left of its group with it
//	p.Exit()              // "exit status 3", "killed by SIGSEGV"
//
// Beside that it has what a process does to itself before it starts others:
// become a subreaper, survive the signals that schedulers send to everybody, and
// close what it inherited when it executes something else.
//
// It knows nothing of workers, kernels or GPUs.
package proc
