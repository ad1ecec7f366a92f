package python

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

const (
	// logBurst is how many bytes a kernel may print in a burst, and logRate how
	// many per second: a progress bar in a loop must not fill the disk.
	logBurst = 8 << 20
	logRate  = 64 << 10
	// logLine is the length at which a line is broken.
	logLine = 32 << 10
)

// printer writes the kernel's output to the log, line by line, prefixed with the
// device's name. It always keeps reading, so that the kernel never blocks, and
// omits output over the limit.
type printer struct {
	to     io.Writer
	device atomic.Pointer[string]

	budget  float64
	last    time.Time
	dropped int64
}

func newPrinter(to io.Writer) *printer {
	return &printer{to: to, budget: logBurst, last: time.Now()}
}

// name sets the device name that prefixes each line.
func (p *printer) name(device string) { p.device.Store(&device) }

// copy reads to the end, or to the deadline of a pipe that another process holds
// open. words gets everything.
func (p *printer) copy(words io.Writer, from io.Reader) {
	in := bufio.NewReaderSize(from, logLine)
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			_, _ = words.Write(line)
			p.print(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	p.reportDropped()
}

func (p *printer) print(line []byte) {
	if isOurs(line) {
		return
	}
	now := time.Now()
	p.budget = min(logBurst, p.budget+now.Sub(p.last).Seconds()*logRate)
	p.last = now
	if p.budget < float64(len(line)) {
		p.dropped += int64(len(line))
		return
	}
	p.reportDropped()
	p.budget -= float64(len(line))
	p.write(bytes.TrimRight(line, "\r\n"))
}

func (p *printer) reportDropped() {
	if p.dropped > 0 {
		p.write(fmt.Appendf(nil, "(the kernel printed too much: %d bytes omitted)", p.dropped))
		p.dropped = 0
	}
}

func (p *printer) write(line []byte) {
	var out []byte
	if device := p.device.Load(); device != nil {
		out = append(append(out, *device...), ": "...)
	}
	_, _ = p.to.Write(append(append(out, line...), '\n'))
}

// isOurs reports whether a traceback line is from the runner, not from the user's code.
func isOurs(line []byte) bool { return bytes.Contains(line, []byte(`File "<gpurun `)) }
