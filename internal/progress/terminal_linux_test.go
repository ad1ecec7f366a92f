package progress

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal with an emulator that reads it.
type terminal struct {
	tty    *os.File // where the program writes
	master *os.File
	ended  sync.WaitGroup

	mu     sync.Mutex
	screen emulator
	raw    strings.Builder
}

func openTerminal(t *testing.T, width, height int) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	var number int
	if err := control(master, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	}); err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	term := &terminal{tty: tty, master: master}
	term.resize(t, width, height)
	term.ended.Add(1)
	go term.watch()
	t.Cleanup(term.close)
	return term
}

// control makes an ioctl without calling Fd, which would make the file blocking, so that
// Close would wait for a read.
func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := conn.Control(func(fd uintptr) { result = do(int(fd)) }); err != nil {
		return err
	}
	return result
}

// resize resizes the window and rewraps its content.
func (term *terminal) resize(t *testing.T, width, height int) {
	t.Helper()
	term.mu.Lock()
	defer term.mu.Unlock()
	if err := control(term.master, func(fd int) error { return setSize(fd, width, height) }); err != nil {
		t.Fatal(err)
	}
	term.screen.resize(width, height)
}

func setSize(fd, width, height int) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(width), Row: uint16(height)})
}

func (term *terminal) watch() {
	defer term.ended.Done()
	p := make([]byte, 4096)
	for {
		n, err := term.master.Read(p)
		term.mu.Lock()
		term.raw.Write(p[:n])
		term.screen.write(p[:n])
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (term *terminal) close() {
	term.tty.Close()
	term.master.Close()
	term.ended.Wait()
}

// look returns the content of the screen, without trailing empty lines.
func (term *terminal) look() []string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.text()
}

func (term *terminal) bytes() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.raw.String()
}

// emulator emulates what the bars need of a terminal. A line that is longer than the window
// wraps, and wraps anew when the window changes.
type emulator struct {
	width, height int
	lines         []line
	row, column   int
	pending       []byte // an incomplete sequence or character
	unknown       []string
	torn          []string // rows of bars that were ever wrapped
}

type line struct {
	cells []rune
	wraps bool // continues in the next line
}

// top is the first line in the window.
func (e *emulator) top() int { return max(0, len(e.lines)-e.height) }

func (e *emulator) resize(width, height int) {
	var whole []line
	cursor := -1 // the whole line that the cursor is in
	for i := range e.lines {
		if i > 0 && e.lines[i-1].wraps {
			last := &whole[len(whole)-1]
			last.cells = append(last.cells, e.lines[i].cells...)
		} else {
			whole = append(whole, line{cells: e.lines[i].cells})
		}
		if i == e.row {
			cursor = len(whole) - 1
		}
	}
	e.width, e.height, e.lines = width, height, nil
	for i, l := range whole {
		for len(l.cells) > width {
			e.lines = append(e.lines, line{cells: l.cells[:width:width], wraps: true})
			l.cells = l.cells[width:]
		}
		e.lines = append(e.lines, line{cells: l.cells})
		if i == cursor {
			e.row = len(e.lines) - 1
		}
	}
}

func (e *emulator) write(p []byte) {
	p = append(e.pending, p...)
	e.pending = nil
	for i := 0; i < len(p); {
		switch c := p[i]; {
		case c == 0x1b:
			n := e.escape(p[i:])
			if n == 0 {
				e.pending = append([]byte{}, p[i:]...)
				return
			}
			i += n
		case c == '\r':
			e.column = 0
			i++
		case c == '\n':
			e.row++
			i++
		case c < ' ':
			e.unknown = append(e.unknown, fmt.Sprintf("%q", c))
			i++
		default:
			n := 1
			for c >= 0xc0 && i+n < len(p) && p[i+n]&0xc0 == 0x80 {
				n++
			}
			if c >= 0xc0 && i+n == len(p) && !validRune(p[i:]) {
				e.pending = append([]byte{}, p[i:]...)
				return
			}
			e.put([]rune(string(p[i : i+n]))[0])
			i += n
		}
	}
}

func validRune(p []byte) bool { return []rune(string(p))[0] != '\uFFFD' }

// at is the line of the cursor.
func (e *emulator) at() *line {
	for len(e.lines) <= e.row {
		e.lines = append(e.lines, line{})
	}
	return &e.lines[e.row]
}

func (e *emulator) put(r rune) {
	if e.column == e.width {
		l := e.at()
		l.wraps = true
		if text := string(l.cells); strings.Contains(text, "[") && strings.Contains(text, " %") {
			e.torn = append(e.torn, text)
		}
		e.row++
		e.column = 0
	}
	l := e.at()
	for len(l.cells) <= e.column {
		l.cells = append(l.cells, ' ')
	}
	l.cells[e.column] = r
	e.column++
}

// escape executes the sequence at the beginning of p and returns its length: 0 if it is
// incomplete.
func (e *emulator) escape(p []byte) int {
	n := 2
	for n < len(p) && (p[n] < '@' || p[n] > '~') {
		n++
	}
	if n >= len(p) {
		return 0
	}
	number, _ := strconv.Atoi(string(p[2:n]))
	switch sequence := string(p[:n+1]); {
	case sequence == "\x1b[J":
		l := e.at()
		l.cells, l.wraps = l.cells[:min(e.column, len(l.cells))], false
		e.lines = e.lines[:e.row+1]
	case sequence == "\x1b[K":
		l := e.at()
		l.cells, l.wraps = l.cells[:min(e.column, len(l.cells))], false
	case p[1] == '[' && p[n] == 'A' && number > 0:
		e.at() // the window goes down to the cursor
		e.row = max(e.top(), e.row-number)
	default:
		e.unknown = append(e.unknown, fmt.Sprintf("%q", sequence))
	}
	return n + 1
}

func (e *emulator) text() []string {
	var text []string
	for _, l := range e.lines {
		text = append(text, strings.TrimRight(string(l.cells), " "))
	}
	for len(text) > 0 && text[len(text)-1] == "" {
		text = text[:len(text)-1]
	}
	return text
}
