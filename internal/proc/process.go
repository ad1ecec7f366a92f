package proc

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command describes what to start and how.
type Command struct {
	Path string
	// Args are the arguments after the program's name.
	Args []string
	// Env is the whole environment; nil means this process's own.
	Env []string
	// Dir is the working folder; empty means this process's own.
	Dir string
	// Stdin is /dev/null if nil: a child must never consume its parent's input.
	Stdin *os.File
	// Stdout and Stderr are /dev/null if nil.
	Stdout, Stderr *os.File
	// ExtraFiles become descriptors 3, 4, … of the child.
	ExtraFiles []*os.File
	// CPUs is the set of processors it may run on; nil means all. Linux only.
	CPUs []int
	// DieWithParent sends the child SIGKILL when this process exits for any reason.
	// Linux only; elsewhere the child must watch a descriptor.
	DieWithParent bool
	// BlockStopSignals starts the child with SIGINT, SIGTERM and SIGHUP blocked, for a
	// program that unblocks them once it has handlers. Linux only.
	BlockStopSignals bool
	// Foreground starts the child in this process's group, so that it may read the
	// terminal. It then receives the signals that a terminal sends, and KillGroup kills
	// only the child itself: the caller must kill its descendants.
	Foreground bool
}

// Process is a started child.
type Process struct {
	pid int
	// group is what KillGroup kills: the negative pid, or the pid of a child in this
	// process's group.
	group int
	kill  func() // instead, for a child of another process
	done  chan struct{}
	exit  Exit

	// mu keeps KillGroup from running while the process is reaped: afterwards its pid may
	// be reused. It also guards exit until done is closed.
	mu     sync.Mutex
	giveUp *time.Timer // set by the first KillGroup
}

// owned holds the running children that Start started, by pid, so that nothing else reaps
// them and takes their exit status.
var owned sync.Map // of *Process

// starting is held for reading while a child exists that is not in owned yet.
var starting sync.RWMutex

// Exit describes how a process exited.
type Exit struct {
	// Code is the exit status, -1 if a signal killed it.
	Code int
	// Signal is the signal that killed it, 0 if none did.
	Signal syscall.Signal
	// Stuck: it was killed but has not exited. See [Stuck].
	Stuck bool
	// MaxRSS is its peak resident memory in bytes, 0 if unknown.
	MaxRSS int64
	// CPU is the CPU time of it and of the descendants that were waited for.
	CPU time.Duration
}

// String returns a phrase for messages that is the same in every run.
func (e Exit) String() string {
	if e.Stuck {
		return "does not exit after SIGKILL"
	}
	if e.Signal != 0 {
		if name := unix.SignalName(e.Signal); name != "" {
			return "killed by " + name
		}
		return fmt.Sprintf("killed by signal %d", int(e.Signal))
	}
	if e.Code < 0 {
		return "exited, status unknown"
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// Foreign reports whether a signal from outside killed it: sent by a person, a scheduler,
// or the kernel when out of memory.
func (e Exit) Foreign() bool {
	switch e.Signal {
	case 0, syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGABRT, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGPIPE:
		return false
	}
	return true
}

// Start starts c in its own process group, unless c is a foreground command. When the
// process exits, the rest of its group is killed before Done is closed.
func Start(c Command) (*Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Dir, cmd.ExtraFiles = c.Env, c.Dir, c.ExtraFiles
	// Assigning a nil *os.File to the interface would not be a nil interface.
	if c.Stdin != nil {
		cmd.Stdin = c.Stdin
	}
	if c.Stdout != nil {
		cmd.Stdout = c.Stdout
	}
	if c.Stderr != nil {
		cmd.Stderr = c.Stderr
	}
	cmd.SysProcAttr = attributes(c)

	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go p.own(cmd, c, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// own starts the command and waits for it on one OS thread: the parent-death
// signal is tied to the thread that forked, not to the process, and the child inherits
// the thread's affinity and blocked signals. The thread is never unlocked: it exits with
// the goroutine, together with its affinity and mask.
func (p *Process) own(cmd *exec.Cmd, c Command, started chan<- error) {
	runtime.LockOSThread()
	if err := prepareThread(c); err != nil {
		started <- err
		return
	}
	starting.RLock()
	err := cmd.Start()
	if err == nil {
		p.pid, p.group = cmd.Process.Pid, -cmd.Process.Pid
		if c.Foreground {
			p.group = p.pid
		}
		owned.Store(p.pid, p)
	}
	starting.RUnlock()
	if started <- err; err != nil {
		return
	}

	p.await(func() Exit {
		_ = cmd.Wait() // the state has the result
		if cmd.ProcessState == nil {
			return Exit{Code: -1}
		}
		usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		return exitOf(cmd.ProcessState.Sys().(syscall.WaitStatus), usage)
	})
}

// Adopt returns the Process of a child that another process forks for this one, its
// subreaper. fork returns the child's pid, quickly: no process can be started meanwhile.
// The child must lead its own group.
func Adopt(fork func() (pid int, err error)) (*Process, error) {
	starting.RLock()
	defer starting.RUnlock()
	pid, err := fork()
	if err != nil {
		return nil, err
	}
	p := &Process{pid: pid, group: -pid, done: make(chan struct{})}
	owned.Store(pid, p)
	go p.await(func() Exit {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		if _, err := syscall.Wait4(pid, &status, 0, &usage); err != nil {
			return Exit{Code: -1}
		}
		return exitOf(status, &usage)
	})
	return p, nil
}

// Watch returns the Process of a child that another process owns. kill makes that kill its group, and
// wait waits until the child has exited.
func Watch(pid int, kill func(), wait func() Exit) *Process {
	p := &Process{pid: pid, kill: kill, done: make(chan struct{})}
	go func() {
		exit := wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.end(exit)
	}()
	return p
}

// await waits for the process, which reap reaps.
func (p *Process) await(reap func() Exit) {
	// While the leader is dead but not yet reaped, its pid, and so the group's id, cannot
	// be reused: kill the group now.
	exited := waitExited(p.pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	if exited {
		_ = syscall.Kill(p.group, syscall.SIGKILL)
	}
	exit := reap()
	if exited && p.group < 0 {
		reapGroup(p.pid)
	}
	owned.Delete(p.pid)
	p.end(exit)
}

// end closes done. The caller must hold p.mu if the process may still be killed. Only the
// first call counts: a stuck process that exits later has already been given up.
func (p *Process) end(exit Exit) {
	if p.Exited() {
		return
	}
	if p.giveUp != nil {
		p.giveUp.Stop()
	}
	p.exit = exit
	close(p.done)
}

// groupReapTime is how long to wait for the killed rest of a group.
const groupReapTime = 50 * time.Millisecond

// reapGroup reaps the processes of a killed group that this process adopted, if it is a
// subreaper. Otherwise a long job would accumulate zombies.
func reapGroup(group int) {
	for deadline := time.Now().Add(groupReapTime); ; {
		pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR || pid > 0:
		case err != nil || time.Now().After(deadline): // none remains, or it is stuck
			return
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

// Pid returns the process id, which is also the id of its group unless it is a foreground
// command.
func (p *Process) Pid() int { return p.pid }

// Done is closed when the process has exited; then Exit may be called. It is also closed
// when a process does not exit in time after KillGroup, so that no wait for a killed
// process lasts forever.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exited reports whether Done is closed.
func (p *Process) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Exit returns how the process exited. Call it only after Done is closed.
func (p *Process) Exit() Exit { return p.exit }

// KillGroup sends SIGKILL to the process and all of its group. It works on stopped
// processes too, and does nothing once the process has exited. A process that has not
// exited after [KillWait] is given up: Done is closed, and Exit reports Stuck.
func (p *Process) KillGroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Exited() {
		return
	}
	if p.kill != nil {
		p.kill()
	} else {
		_ = syscall.Kill(p.group, syscall.SIGKILL)
	}
	if p.giveUp == nil {
		p.giveUp = time.AfterFunc(KillWait(), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.end(Exit{Code: -1, Stuck: true})
		})
	}
}

// End waits up to grace for the process to exit, then kills its group and waits up to
// [KillWait]. It reports whether the process exited by itself.
func (p *Process) End(grace time.Duration) bool {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return !p.exit.Stuck
	case <-timer.C:
		p.KillGroup()
		<-p.done
		return false
	}
}

func exitOf(status syscall.WaitStatus, usage *syscall.Rusage) Exit {
	e := Exit{Code: status.ExitStatus()}
	if status.Signaled() {
		e.Signal = status.Signal()
	}
	if usage != nil {
		e.MaxRSS, e.CPU = maxRSS(usage), time.Duration(usage.Utime.Nano()+usage.Stime.Nano())
	}
	return e
}
