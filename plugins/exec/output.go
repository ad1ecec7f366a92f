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
	// firstLook is after how long the wait for a line is first used to look at the
	// program; the pauses between looks double up to lastLook.
	firstLook = 250 * time.Microsecond
	lastLook  = 50 * time.Millisecond
	// maxAnswers is how many bytes a batch may be answered with: a kernel cannot
	// return more.
	maxAnswers = 1 << 30
)

var (
	errTooLong = errors.New("a line over the limit")
	errTooMuch = fmt.Errorf("exec: the answers to one batch have more than %d bytes", maxAnswers)
)

// output is what the program writes on standard output.
type output struct {
	pipe   *os.File
	lines  *bufio.Reader
	most   int             // bytes of a line; 0: no limit
	ended  <-chan struct{} // closed when the program has ended
	onWait func()
	// mu keeps watchers from the moment in which something is read.
	mu sync.Mutex
	// starved: the pipe was empty when it was read last.
	starved bool
	reads   int
	// overdue: a deadline has passed, and the program lives.
	overdue bool
	// longest is how long a line was waited for at most.
	longest time.Duration
}

func newOutput(pipe *os.File, most int64, ended <-chan struct{}) *output {
	o := &output{pipe: pipe, most: int(min(most, maxAnswers)), ended: ended}
	o.lines = bufio.NewReaderSize(o, 256<<10)
	return o
}

// line returns the next line without its end. A last line without a newline comes
// with io.EOF.
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

// Read fills the buffer when it is empty. It reads to the end, or, once the deadline
// after the program's own end has passed, until the pipe is empty.
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

// read reads once, and notes it before anybody else can see the pipe emptied.
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

// hunger is how often the pipe was read, if that was in vain the last time.
func (o *output) hunger() (reads int, starved bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reads, o.starved && !ready(o.pipe, 0)
}

// wait returns when there is something to read, and calls onWait in the meantime.
func (o *output) wait() {
	if ready(o.pipe, 0) {
		return
	}
	began := time.Now()
	defer func() { o.longest = max(o.longest, time.Since(began)) }()
	o.onWait()
	for pause := firstLook; !ready(o.pipe, pause); pause = min(2*pause, lastLook) {
		select {
		case <-o.ended: // its children may hold the pipe: Read has a deadline now
			return
		default:
			o.onWait()
		}
	}
}

// surplus reports whether a line, or the beginning of one, is there that answers no
// record, or comes within the time, and whether the output has ended instead.
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

// ready reports whether the pipe has something to read, its end included, within the
// time.
func ready(pipe *os.File, within time.Duration) bool {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return true // it is closed: reading it says so
	}
	is := false
	err = raw.Control(func(fd uintptr) { is = poll(int32(fd), within) })
	return is || err != nil
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
