package template

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/proc"
)

// Child is a process that a template has forked for this one.
type Child struct {
	*proc.Process
	// Load is what the template took to start.
	Load Load
	// Itself: the process is the template, since that cannot be forked.
	Itself bool

	conn *net.UnixConn
}

// Fork asks the guard that listens at socket for a child. The first of the files is for a
// template that starts, the others are for the child; a lifeline follows them. It returns
// ErrRefused, with the reason, if the process must be started without a template.
func Fork(ctx context.Context, socket string, r Request, files ...*os.File) (*Child, error) {
	conn, err := dial(socket)
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
		if !stop() { // the deadline is for the request only
			_ = conn.SetDeadline(time.Time{})
		}
		kill := func() { _ = send(conn, order{Kill: true}) } // if the guard is lost, wait kills the child
		wait := func() proc.Exit {
			defer conn.Close()
			defer closeAll([]*os.File{ours, received[0]})
			return wait(conn, answer.PID, int(received[0].Fd()))
		}
		return &Child{proc.Watch(answer.PID, kill, wait), answer.Load, answer.Itself, conn}, nil
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
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	return send(conn, order{Request: &r, Load: true}, file)
}

// wait waits for the guard's report of the child's end. If the guard is lost, the child is killed:
// no process would reap it.
func wait(conn *net.UnixConn, pid, pidfd int) proc.Exit {
	for {
		var last report
		files, err := receive(conn, &last)
		closeAll(files)
		switch {
		case err != nil:
			return killDirectly(pid, pidfd)
		case last.Exit != nil:
			return *last.Exit
		}
	}
}

// killDirectly kills the child without its guard and waits for it.
func killDirectly(pid, pidfd int) proc.Exit {
	if unix.PidfdSendSignal(pidfd, 0, nil, 0) == nil { // its pid is not reused
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
	_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
	for deadline := time.Now().Add(proc.KillWait()); time.Now().Before(deadline); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 100)
		if n > 0 || err != nil && err != unix.EINTR {
			return proc.Exit{Code: -1, Signal: syscall.SIGKILL}
		}
	}
	return proc.Exit{Code: -1, Stuck: true}
}

// Spoil kills the process and lets the guard fork no more from its template.
func (c *Child) Spoil(why string) {
	_ = send(c.conn, order{Spoil: why})
	c.KillGroup()
}
