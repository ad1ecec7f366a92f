// Package proc manages child processes: each leads its own process group, is started from
// a thread that lives as long as it does, and is never left behind.
//
//	p, err := proc.Start(proc.Command{Path: exe, DieWithParent: true})
//	<-p.Done()            // it exited, and the rest of its group was killed
//	p.Exit()              // "exit status 3", "killed by SIGSEGV"
//
// It also has what a process does to itself before it starts others: become a subreaper,
// survive the signals that schedulers send to every process, and close inherited
// descriptors on exec.
//
// It knows nothing of workers, kernels or GPUs.
package proc
