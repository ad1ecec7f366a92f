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

// poll reports whether fd has something to read, or has ended, within the time.
func poll(fd int32, within time.Duration) bool {
	fds := []unix.PollFd{{Fd: fd, Events: unix.POLLIN}}
	limit := unix.NsecToTimespec(int64(within))
	n, err := unix.Ppoll(fds, &limit, nil)
	return err == nil && n > 0
}

// unread is how many bytes of what was written to a pipe nobody has read yet.
func unread(pipe *os.File) int {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}

// observer looks at what a program and its children are doing, by their threads'
// system calls in /proc.
type observer struct {
	pid  int
	pipe string // the program's standard input, as a descriptor's link names it
	// reader is the thread that was last seen reading it.
	reader thread
	// files are those of /proc that were read; they stay open, since a program is
	// looked at after every batch.
	files map[string]*os.File
	// links are the descriptors that are known to be the pipe.
	links  map[string]bool
	buffer [1024]byte
}

type thread struct{ pid, tid int }

// mostFiles bounds those that stay open.
const mostFiles = 16

func newObserver(pid int, stdin *os.File) *observer {
	return &observer{pid: pid, pipe: pipeName(stdin), files: map[string]*os.File{}, links: map[string]bool{}}
}

func (o *observer) close() {
	for _, file := range o.files {
		file.Close()
	}
	o.files = nil
}

// read returns the beginning of a file of /proc.
func (o *observer) read(path string) ([]byte, error) {
	file, err := o.files[path], error(nil)
	if file == nil {
		if file, err = os.Open(path); err != nil {
			return nil, err
		}
		if o.files != nil && len(o.files) < mostFiles {
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

// look tells whether the program waits for input: a thread of it is blocked in reading
// the pipe, and no other process of it runs; and whether any of it runs.
func (o *observer) look() (waits, runs bool) {
	if o.pipe == "" {
		return false, false
	}
	reading, running := o.tree(o.pid, 0)
	return reading && !running, running
}

// maxDepth bounds the walk through children, which may change meanwhile.
const maxDepth = 8

// tree tells of a process and its children whether one is blocked in reading the pipe,
// and whether one of the others runs.
func (o *observer) tree(pid, depth int) (reading, running bool) {
	reading, running = o.process(pid)
	if reading {
		running = false // threads that spin between batches
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

// thread reads a thread's system call: "0 0x0 …" is its number and arguments,
// "running" a thread that is in none.
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
