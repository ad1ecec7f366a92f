package template

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/proc"
)

// Child is a process that a template has forked for this one. It has the methods of
// [proc.Process].
type Child struct {
	// Load is what the template took to start.
	Load Load
	// Itself: the process is the template, since that cannot be forked.
	Itself bool

	pid      int
	pidfd    *os.File
	conn     *net.UnixConn
	lifeline *os.File
	done     chan struct{}

	mu     sync.Mutex
	exit   proc.Exit
	giveUp *time.Timer
}

// Fork asks the guard that listens at socket for a child. The first of the files is for a
// template that starts, the others are for the child; a lifeline follows them. It returns
// ErrRefused, with the reason, if the process must be started without a template.
func Fork(ctx context.Context, socket string, r Request, files ...*os.File) (*Child, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	theirs, ours, err := os.Pipe()
	if err != nil {
		conn.Close()
		return nil, err
	}
	err = send(conn, order{Request: &r}, append(files, theirs)...)
	theirs.Close()
	var answer report
	var received []*os.File
	if err == nil {
		received, err = receive(conn, &answer)
	}
	if err == nil && answer.PID > 0 && len(received) == 1 {
		c := &Child{
			Load: answer.Load, Itself: answer.Itself, pid: answer.PID, pidfd: received[0],
			conn: conn, lifeline: ours, done: make(chan struct{}),
		}
		if !stop() { // the deadline is for the request only
			_ = conn.SetDeadline(time.Time{})
		}
		go c.wait()
		return c, nil
	}
	closeAll(received)
	conn.Close()
	ours.Close()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("%w: the guard of the templates is gone", ErrRefused)
	}
	return nil, fmt.Errorf("%w: %s", ErrRefused, answer.Refused)
}

// Begin makes the guard that listens at socket start a template before a call of Fork needs it. It
// does not wait. The file is for the template.
func Begin(socket string, r Request, file *os.File) error {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return err
	}
	defer conn.Close()
	return send(conn, order{Request: &r, Load: true}, file)
}

// wait waits for the guard's report of the child's end. If the guard is lost, the child is killed:
// no process would reap it.
func (c *Child) wait() {
	var last report
	for last.Exit == nil {
		files, err := receive(c.conn, &last)
		closeAll(files)
		if err != nil {
			last.Exit = c.killDirectly()
		}
	}
	c.end(*last.Exit)
}

// killDirectly kills the child without its guard and waits for it.
func (c *Child) killDirectly() *proc.Exit {
	fd := int(c.pidfd.Fd())
	if unix.PidfdSendSignal(fd, 0, nil, 0) == nil { // its pid is not reused
		_ = syscall.Kill(-c.pid, syscall.SIGKILL)
	}
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	for deadline := time.Now().Add(proc.KillWait()); time.Now().Before(deadline); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 || err != nil && err != unix.EINTR {
			return &proc.Exit{Code: -1, Signal: syscall.SIGKILL}
		}
	}
	return &proc.Exit{Code: -1, Stuck: true}
}

func (c *Child) end(exit proc.Exit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
		return
	default:
	}
	if c.giveUp != nil {
		c.giveUp.Stop()
	}
	c.exit = exit
	c.conn.Close()
	c.lifeline.Close()
	c.pidfd.Close()
	close(c.done)
}

// Pid returns the process id.
func (c *Child) Pid() int { return c.pid }

// Done is closed when the process has exited, or was killed and does not exit.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exit returns how the process exited. Call it only after Done is closed.
func (c *Child) Exit() proc.Exit { return c.exit }

// KillGroup sends SIGKILL to the process and all of its group.
func (c *Child) KillGroup() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
		return
	default:
	}
	_ = send(c.conn, order{Kill: true}) // if the guard is lost, wait kills the child
	if c.giveUp == nil {
		c.giveUp = time.AfterFunc(proc.KillWait(), func() { c.end(proc.Exit{Code: -1, Stuck: true}) })
	}
}

// Spoil kills the process and lets the guard fork no more from its template.
func (c *Child) Spoil(why string) {
	c.mu.Lock()
	_ = send(c.conn, order{Spoil: why})
	c.mu.Unlock()
	c.KillGroup()
}

// End waits up to grace for the process to exit, then kills its group. It reports whether the
// process exited by itself.
func (c *Child) End(grace time.Duration) bool {
	select {
	case <-c.done:
		return !c.exit.Stuck
	case <-time.After(grace):
		c.KillGroup()
		<-c.done
		return false
	}
}
