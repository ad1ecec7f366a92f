package main

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// clock sleeps exactly. Go rounds sleeps up to whole milliseconds while it also polls
// for input, as it does here, which would make them a few percent too long.
type clock struct{ timer *os.File }

func newClock() (*clock, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &clock{os.NewFile(uintptr(fd), "timer")}, nil
}

func (c *clock) sleep(length time.Duration) error {
	if length <= 0 {
		return nil
	}
	connection, err := c.timer.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = connection.Control(func(fd uintptr) {
		failed = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(length.Nanoseconds())}, nil)
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	_, err = c.timer.Read(make([]byte, 8))
	return err
}
