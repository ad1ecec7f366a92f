package progress

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// screen connects mpb to the terminal. It differs from mpb's own writer:
//
//   - It overwrites rows instead of erasing and rewriting them, to avoid flicker.
//   - It starts at the left edge, wherever the echo of a ^C left the cursor.
//   - When the window became narrower, the terminal has wrapped the old rows: it moves
//     up by as many lines as they take now.
//   - It cuts rows that exceed the height of the window, or each frame would scroll.
//   - It keeps what was written while the job was stopped by ^Z and draws below it.
//   - It buffers lines to print above the bars, so that a terminal stopped with ^S does
//     not block the job.
type screen struct {
	out   *os.File
	frame bytes.Buffer // what mpb wrote since the last Flush
	last  []byte       // the last frame that Flush wrote, to skip identical ones
	drawn []int        // the widths of the rows above the cursor
	width int          // of the window when they were drawn
	below atomic.Bool  // another process wrote below the rows: leave them as they are

	mu    sync.Mutex
	above []byte // lines to print above the rows with the next Flush
}

// print queues lines to go above the rows.
func (s *screen) print(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.above = append(s.above, p...)
	if n := len(p); n > 0 && p[n-1] != '\n' {
		s.above = append(s.above, '\n') // rows start at the left edge
	}
}

// waiting returns the queued lines and empties the queue.
func (s *screen) waiting() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.above
	s.above = nil
	return lines
}

// size is the size of the window, or a common one if unknown.
func (s *screen) size() (width, height int) {
	window, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || window.Col == 0 || window.Row == 0 {
		return 80, 24
	}
	return int(window.Col), int(window.Row)
}

func (s *screen) Write(p []byte) (int, error) { return s.frame.Write(p) }

func (s *screen) ReadFrom(r io.Reader) (int64, error) { return s.frame.ReadFrom(r) }

func (s *screen) IsTerminal() bool { return true }

// GetTermSize leaves the last column free: some terminals wrap when it is written to. It
// hides the height from mpb, which miscounts the rows it leaves out; Flush cuts them.
func (s *screen) GetTermSize() (width, height int, err error) {
	width, _ = s.size()
	return max(1, width-1), math.MaxInt32, nil
}

// Flush draws the rows that mpb wrote.
func (s *screen) Flush(int) error {
	defer s.frame.Reset()
	above := s.waiting()
	if s.below.Swap(false) {
		s.drawn, s.last = nil, nil
	}
	if len(above) == 0 && bytes.Equal(s.frame.Bytes(), s.last) {
		return nil
	}
	s.last = append(s.last[:0], s.frame.Bytes()...)
	width, height := s.size()
	rows := bytes.SplitAfter(s.frame.Bytes(), []byte("\n"))
	rows = rows[:len(rows)-1] // nothing follows the last newline
	rows = rows[max(0, len(rows)-max(1, height-1)):]

	var b bytes.Buffer
	b.WriteByte('\r')
	if up := min(s.lines(width), height-1); up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	if len(above) > 0 || width != s.width {
		b.WriteString("\x1b[J")
		b.Write(above)
	}
	s.width = width
	s.drawn = s.drawn[:0]
	for _, row := range rows {
		row = bytes.TrimRight(row, " \n")
		s.drawn = append(s.drawn, utf8.RuneCount(row))
		b.Write(row)
		b.WriteString("\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	_, err := s.out.Write(b.Bytes())
	return err
}

// lines is how many lines the drawn rows take in a window of this width.
func (s *screen) lines(width int) int {
	n := 0
	for _, w := range s.drawn {
		n += max(1, (w+width-1)/width)
	}
	return n
}
