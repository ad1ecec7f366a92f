package exec

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// poll reports whether fd becomes readable, or reaches its end, within the given time.
func poll(fd int32, within time.Duration) bool {
	fds := []unix.PollFd{{Fd: fd, Events: unix.POLLIN}}
	limit := unix.NsecToTimespec(int64(within))
	n, err := unix.Ppoll(fds, &limit, nil)
	return err == nil && n > 0
}

// unread returns the number of bytes in a pipe that the reader has not consumed yet.
func unread(pipe *os.File) int {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}

// observer finds out from /proc which system calls a program and its children are in.
type observer struct {
	pid  int
	pipe string // the program's standard input, as the link in /proc/PID/fd names it
	// reader is the thread last seen reading the pipe.
	reader thread
	// files are open files of /proc. They stay open because the program is observed
	// after every batch.
	files map[string]*os.File
	// links caches which descriptors are the pipe.
	links  map[string]bool
	buffer [1024]byte
}

type thread struct{ pid, tid int }

// maxFiles bounds the number of files kept open.
const maxFiles = 16

func newObserver(pid int, stdin *os.File) *observer {
	return &observer{pid: pid, pipe: pipeName(stdin), files: map[string]*os.File{}, links: map[string]bool{}}
}

func (o *observer) close() {
	for _, file := range o.files {
		file.Close()
	}
	o.files = nil
}

// read returns the beginning of a file in /proc.
func (o *observer) read(path string) ([]byte, error) {
	file, err := o.files[path], error(nil)
	if file == nil {
		if file, err = os.Open(path); err != nil {
			return nil, err
		}
		if o.files != nil && len(o.files) < maxFiles {
			o.files[path] = file
		} else {
			defer file.Close()
		}
	}
	n, err := file.ReadAt(o.buffer[:], 0)
	if n == 0 && err != io.EOF {
		return nil, err
	}
	return o.buffer[:n], nil
}

func pipeName(pipe *os.File) string {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return ""
	}
	name := ""
	_ = raw.Control(func(fd uintptr) { name, _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)) })
	return name
}

// look reports whether the program waits for input, that is, one of its threads is
// blocked reading the pipe and no other process of it runs, and whether any of its
// processes runs.
func (o *observer) look() (waits, runs bool) {
	if o.pipe == "" {
		return false, false
	}
	reading, running := o.tree(o.pid, 0)
	return reading && !running, running
}

// maxDepth bounds the walk through children, which may change during the walk.
const maxDepth = 8

// tree reports whether a process or one of its children is blocked reading the pipe, and
// whether one of the others runs.
func (o *observer) tree(pid, depth int) (reading, running bool) {
	reading, running = o.process(pid)
	if reading {
		running = false // its other threads may spin between batches
	}
	if depth == maxDepth {
		return reading, running
	}
	children, _ := o.read(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, field := range strings.Fields(string(children)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			continue
		}
		childReading, childRunning := o.tree(child, depth+1)
		reading, running = reading || childReading, running || childRunning
	}
	return reading, running
}

func (o *observer) process(pid int) (reading, running bool) {
	if o.reader.pid == pid {
		if reading, _ = o.thread(o.reader); reading {
			return true, false
		}
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return false, false
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			continue
		}
		t := thread{pid, tid}
		isReading, isRunning := o.thread(t)
		if isReading {
			o.reader = t
			return true, false
		}
		running = running || isRunning
	}
	return false, running
}

// thread reports what a thread is doing. Its file reads "0 0x0 …", the number and
// arguments of a system call, or "running" if the thread is not in one.
func (o *observer) thread(t thread) (reading, running bool) {
	data, err := o.read(fmt.Sprintf("/proc/%d/task/%d/syscall", t.pid, t.tid))
	if err != nil {
		return false, false
	}
	if bytes.HasPrefix(data, []byte("running")) {
		return false, true
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return false, false
	}
	number, err := strconv.Atoi(fields[0])
	if err != nil {
		return false, false
	}
	fd, err := strconv.ParseUint(strings.TrimPrefix(fields[1], "0x"), 16, 64)
	if err != nil {
		return false, false
	}
	switch number {
	case unix.SYS_READ, unix.SYS_READV, unix.SYS_SPLICE:
		return o.isPipe(t.pid, int(int32(fd))), false
	case unix.SYS_EPOLL_PWAIT:
		return o.isPipe(t.pid, 0) && o.isPolled(t.pid, int(int32(fd))), false
	}
	return false, false
}

// isPolled reports whether an event loop waits for standard input.
func (o *observer) isPolled(pid, loop int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, loop))
	for _, line := range strings.Split(string(data), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "tfd:" && fields[1] == "0" {
			return err == nil
		}
	}
	return false
}

func (o *observer) isPipe(pid, fd int) bool {
	path := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
	if o.links[path] {
		return true
	}
	link, err := os.Readlink(path)
	o.links[path] = err == nil && link == o.pipe
	return o.links[path]
}
