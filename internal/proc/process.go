package proc

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Command says what to start and how.
type Command struct {
	Path string
	// Args are the arguments after the program's name.
	Args []string
	// Env is the whole environment; nil means this process's own.
	Env []string
	// Dir is the working folder; empty means this process's own.
	Dir string
	// Stdin is /dev/null if nil: a child must never eat its parent's input.
	Stdin *os.File
	// Stdout and Stderr are /dev/null if nil.
	Stdout, Stderr *os.File
	// ExtraFiles become descriptors 3, 4, … of the child.
	ExtraFiles []*os.File
	// CPUs is the set of processors it may run on; nil means all. Linux only.
	CPUs []int
	// DieWithParent sends the child SIGKILL when this process ends, however it
	// ends. Linux only; elsewhere the child must watch a descriptor.
	DieWithParent bool
	// BlockStopSignals starts the child with SIGINT, SIGTERM and SIGHUP blocked, for a
	// program that unblocks them once it has handlers. Linux only.
	BlockStopSignals bool
}

// Process is a started child.
type Process struct {
	pid  int
	done chan struct{}
	exit Exit

	// mu keeps KillGroup from the moment in which the process is waited for:
	// afterwards its pid may be anybody's. It guards exit, too, until done is closed.
	mu     sync.Mutex
	giveUp *time.Timer // set by the first KillGroup
}

// owned are the running children that Start started, by pid, so that nobody else
// waits for them and takes their exit status away.
var owned sync.Map // of *Process

// starting is held for reading while a child exists that is not in owned yet.
var starting sync.RWMutex

// Exit tells how a process ended.
type Exit struct {
	// Code is the exit status, -1 if a signal ended it.
	Code int
	// Signal is the signal that ended it, 0 if none did.
	Signal syscall.Signal
	// Stuck: it was killed and has not ended. See [Stuck].
	Stuck bool
	// MaxRSS is its peak resident memory in bytes, 0 where not known.
	MaxRSS int64
}

// String is a phrase for messages; it holds nothing that differs from run to run.
func (e Exit) String() string {
	if e.Stuck {
		return "does not end after SIGKILL"
	}
	if e.Signal != 0 {
		if name := signalName(e.Signal); name != "" {
			return "killed by " + name
		}
		return fmt.Sprintf("killed by signal %d", int(e.Signal))
	}
	if e.Code < 0 {
		return "ended, exit status unknown"
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// Foreign reports whether it was ended by a signal that it did not bring upon
// itself: somebody sent it, a person, a scheduler, or the kernel for want of memory.
func (e Exit) Foreign() bool {
	switch e.Signal {
	case 0, syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGABRT, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGPIPE:
		return false
	}
	return true
}

// Start starts c in a process group of its own. When the process ends, whatever
// is left of its group is killed before Done is closed.
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
// signal follows the thread that forked, not the process, and affinity and blocked
// signals are inherited from it. The thread is never unlocked: it ends with the
// goroutine, and its affinity and its mask with it.
func (p *Process) own(cmd *exec.Cmd, c Command, started chan<- error) {
	runtime.LockOSThread()
	if err := prepareThread(c); err != nil {
		started <- err
		return
	}
	starting.RLock()
	err := cmd.Start()
	if err == nil {
		p.pid = cmd.Process.Pid
		owned.Store(p.pid, p)
	}
	starting.RUnlock()
	if started <- err; err != nil {
		return
	}

	// While the leader is dead but not yet waited for, its pid, and with it the
	// group's id, cannot be given to anybody else: the group is killed then.
	exited := waitExited(p.pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	if exited {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	}
	_ = cmd.Wait() // the state below says what it would
	if exited {
		reapGroup(p.pid)
	}
	owned.Delete(p.pid)
	p.end(exitOf(cmd.ProcessState))
}

// end closes done; p.mu is held where the process may still be killed. The first call
// counts: a stuck process that ends after all is nobody's concern any more.
func (p *Process) end(exit Exit) {
	select {
	case <-p.done:
		return
	default:
	}
	if p.giveUp != nil {
		p.giveUp.Stop()
	}
	p.exit = exit
	close(p.done)
}

// groupReapTime is how long the killed rest of a group is waited for.
const groupReapTime = 50 * time.Millisecond

// reapGroup waits for what was left of a killed group and came to this process,
// if it is a subreaper: nobody else would, and a long job would gather zombies.
func reapGroup(group int) {
	for deadline := time.Now().Add(groupReapTime); ; {
		pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR || pid > 0:
		case err != nil || time.Now().After(deadline): // there is none; or it is stuck
			return
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

// Pid returns the process id, which is also the id of its group.
func (p *Process) Pid() int { return p.pid }

// Done is closed when the process has ended and Exit may be asked. It is closed as well
// when KillGroup has not ended the process after a while: no wait for a killed process
// lasts for ever.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit tells how the process ended; call it only after Done is closed.
func (p *Process) Exit() Exit { return p.exit }

// KillGroup sends SIGKILL to the process and all of its group. It works on
// stopped processes too, and does nothing once the process is gone. A process that
// has not ended after [KillWait] is given up: Done is closed, and Exit says Stuck.
func (p *Process) KillGroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		if p.giveUp == nil {
			p.giveUp = time.AfterFunc(KillWait(), func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.end(Exit{Code: -1, Stuck: true})
			})
		}
	}
}

// End waits up to grace for the process to end by itself, then kills its group
// and waits for that, [KillWait] at most. It reports whether the process ended by
// itself.
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

func exitOf(state *os.ProcessState) Exit {
	if state == nil {
		return Exit{Code: -1}
	}
	e := Exit{Code: state.ExitCode()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = status.Signal()
	}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		e.MaxRSS = maxRSS(usage)
	}
	return e
}
