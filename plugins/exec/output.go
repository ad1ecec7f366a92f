package exec

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxAnswers limits the output for one batch in bytes: a kernel cannot return more.
const maxAnswers = 1 << 30

var (
	errTooLong = errors.New("a line over the limit")
	errTooMuch = fmt.Errorf("exec: the output for one batch exceeds %d bytes", maxAnswers)
)

// output reads the program's standard output.
type output struct {
	pipe  *os.File
	lines *bufio.Reader
	most  int // maximum bytes per line; 0 means no limit
	// idle, if set, is called when a read has waited for longer than patience returns.
	idle     func()
	patience func() time.Duration
	waited   time.Duration // by the last read

	mu     sync.Mutex
	exited bool // the program has exited; its children may hold the pipe open
}

func newOutput(pipe *os.File, most int64) *output {
	o := &output{pipe: pipe, most: int(min(most, maxAnswers))}
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

// Read refills the line buffer. It reads until the end of the output or, once the program
// has exited, until the pipe has been empty for drainTime.
func (o *output) Read(b []byte) (int, error) {
	began := time.Now()
	for {
		exited := o.limit()
		n, err := o.pipe.Read(b)
		o.waited = time.Since(began)
		switch {
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return n, err
		case exited:
			return 0, io.EOF
		case o.idle != nil && o.waited >= o.patience():
			o.idle()
			o.idle = nil
		}
	}
}

// limit sets how long the next read may take, and reports whether the program has exited.
func (o *output) limit() (exited bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var deadline time.Time
	switch {
	case o.exited:
		deadline = time.Now().Add(drainTime)
	case o.idle != nil:
		deadline = time.Now().Add(o.patience())
	}
	_ = o.pipe.SetReadDeadline(deadline)
	return o.exited
}

// setExited ends a read that waits: what the program has written is in the pipe.
func (o *output) setExited() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.exited = true
	_ = o.pipe.SetReadDeadline(time.Now())
}

// surplus reports whether there is output that answers no record, even part of a line, and
// whether the output has ended instead.
func (o *output) surplus() (more, end bool) {
	if o.lines.Buffered() > 0 {
		return true, false
	}
	if !ready(o.pipe) {
		return false, false
	}
	_, err := o.lines.Peek(1)
	return err == nil, err != nil
}

// ready reports whether the pipe is readable or has reached its end.
func ready(pipe *os.File) bool {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return true // it is closed: the next read reports that
	}
	n := 0
	err = raw.Control(func(fd uintptr) { n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) })
	return n > 0 || err != nil
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
