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

// screen is mpb's way to the terminal. It differs from mpb's own in what a
// person sees:
//
//   - Rows are written over, not erased and written again: nothing flickers.
//   - It starts at the left edge, wherever the echo of a ^C left the cursor.
//   - When the window became narrower, the terminal has wrapped what stood
//     there: it goes up as many lines as there are now.
//   - More rows than the window has lines are cut, or each frame would scroll.
//   - What was written while the job was stopped by ^Z stays: rows are drawn below it.
//   - Lines for above the bars wait here: a terminal stopped with ^S stops no
//     job.
type screen struct {
	out   *os.File
	frame bytes.Buffer // what mpb wrote since the last Flush
	last  []byte       // what Flush wrote, to write nothing twice
	drawn []int        // the widths of the rows above the cursor
	width int          // of the window when they were drawn
	below atomic.Bool  // somebody else wrote below the rows: they are left as they are

	mu    sync.Mutex
	above []byte // lines that go above the rows with the next Flush
}

// print puts lines above the rows.
func (s *screen) print(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.above = append(s.above, p...)
	if n := len(p); n > 0 && p[n-1] != '\n' {
		s.above = append(s.above, '\n') // rows begin at the left edge
	}
}

// waiting takes the lines that are to go above the rows.
func (s *screen) waiting() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.above
	s.above = nil
	return lines
}

// size is the window's, or that of a common one where it is not known.
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

// GetTermSize leaves the last column free: some terminals wrap when it is
// written to. The height is no limit to mpb, which miscounts the rows that it
// leaves out; Flush cuts them.
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
	rows = rows[:len(rows)-1] // nothing is after the last end of line
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

// lines is how many lines the drawn rows take in a window of that width.
func (s *screen) lines(width int) int {
	n := 0
	for _, w := range s.drawn {
		n += max(1, (w+width-1)/width)
	}
	return n
}
