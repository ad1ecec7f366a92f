package exec

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// firstLook is how long to wait for a line before observing the program for the
	// first time; the pauses between observations double up to lastLook.
	firstLook = 250 * time.Microsecond
	lastLook  = 50 * time.Millisecond
	// maxAnswers limits the output for one batch in bytes: a kernel cannot return more.
	maxAnswers = 1 << 30
)

var (
	errTooLong = errors.New("a line over the limit")
	errTooMuch = fmt.Errorf("exec: the output for one batch exceeds %d bytes", maxAnswers)
)

// output reads the program's standard output.
type output struct {
	pipe   *os.File
	lines  *bufio.Reader
	most   int             // maximum bytes per line; 0 means no limit
	ended  <-chan struct{} // closed when the program has exited
	onWait func()
	// mu keeps observers from looking while a read is in progress.
	mu sync.Mutex
	// starved: the last read found the pipe empty.
	starved bool
	reads   int
	// overdue: a deadline has passed and the program is still running.
	overdue bool
	// longest is the longest wait for a line so far.
	longest time.Duration
}

func newOutput(pipe *os.File, most int64, ended <-chan struct{}) *output {
	o := &output{pipe: pipe, most: int(min(most, maxAnswers)), ended: ended}
	o.lines = bufio.NewReaderSize(o, 256<<10)
	return o
}

// line returns the next line without its line ending. A last line without a newline
// is returned with io.EOF.
func (o *output) line() ([]byte, error) {
	var line []byte
	for {
		piece, err := o.lines.ReadSlice('\n')
		if o.most > 0 && len(line)+len(bytes.TrimRight(piece, "\r\n")) > o.most {
			return nil, errTooLong
		}
		line = append(line, piece...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return trimEnd(line), err
		}
	}
}

// Read refills the line buffer. It reads until the end of the output or, once the
// deadline after the program's exit has passed, until the pipe is empty.
func (o *output) Read(b []byte) (int, error) {
	if o.onWait != nil {
		o.wait()
	}
	began := time.Now()
	defer func() { o.longest = max(o.longest, time.Since(began)) }()
	for {
		n, err := o.read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if !ready(o.pipe, 0) {
			select {
			case <-o.ended:
			default:
				o.overdue = true
			}
			return n, io.EOF
		}
		_ = o.pipe.SetReadDeadline(time.Now().Add(drainTime))
	}
}

// read reads once and records the fact before an observer can see the pipe empty.
func (o *output) read(b []byte) (n int, err error) {
	raw, err := o.pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failure error
	err = raw.Read(func(fd uintptr) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		for n, failure = syscall.Read(int(fd), b); errors.Is(failure, syscall.EINTR); {
			n, failure = syscall.Read(int(fd), b)
		}
		o.starved = errors.Is(failure, syscall.EAGAIN)
		o.reads++
		return !o.starved
	})
	switch {
	case err != nil:
		return 0, err
	case failure != nil:
		return 0, failure
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// readState returns the number of reads so far, and whether the last one found the pipe
// empty and it still is.
func (o *output) readState() (reads int, starved bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reads, o.starved && !ready(o.pipe, 0)
}

// wait calls onWait until there is something to read.
func (o *output) wait() {
	if ready(o.pipe, 0) {
		return
	}
	began := time.Now()
	defer func() { o.longest = max(o.longest, time.Since(began)) }()
	o.onWait()
	for pause := firstLook; !ready(o.pipe, pause); pause = min(2*pause, lastLook) {
		select {
		case <-o.ended: // its children may hold the pipe open, but Read now has a deadline
			return
		default:
			o.onWait()
		}
	}
}

// surplus reports whether output that answers no record arrives within the given time,
// even part of a line, and whether the output has ended instead.
func (o *output) surplus(within time.Duration) (more, end bool) {
	if o.lines.Buffered() > 0 {
		return true, false
	}
	if !ready(o.pipe, within) {
		return false, false
	}
	_, err := o.lines.Peek(1)
	return err == nil, err != nil
}

// ready reports whether the pipe becomes readable, or reaches its end, within the given
// time.
func ready(pipe *os.File, within time.Duration) bool {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return true // it is closed: the next read reports that
	}
	is := false
	err = raw.Control(func(fd uintptr) { is = poll(int32(fd), within) })
	return is || err != nil
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
