package progress

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// within fails the test if a call does not return.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatalf("%s does not return", what)
	}
}

// begin starts a job with n computing workers, each halfway through a chunk.
func begin(d Display, n int) {
	d.Event(orchestrator.Planned{Plan: orchestrator.Plan{Records: 2_000_000, Chunks: 64, Flight: "batches of 128", Slots: slots("GPU %d", n)}})
	for i := range n {
		d.Event(orchestrator.WorkerStarted{Slot: i})
		d.Event(orchestrator.WorkerReady{Slot: i})
		d.Event(orchestrator.ChunkStarted{Slot: i, Records: 31_360})
		d.Event(progressed(i, counts(15_680, 0), counts(int64(i+1)*15_680, 0), 2_000_000))
	}
}

func finish(d Display) {
	d.Event(orchestrator.Finished{Report: orchestrator.Report{In: 2_000_000, Succeeded: 2_000_000, Computed: 2_000_000, Rate: 590_000, Elapsed: 3400 * time.Millisecond}})
}

var wholeRow = regexp.MustCompile(`^(GPU \d+|total) +\[(=*>? *|\.*)\]  .{5}  (.* )?[0-9.,]+[kM]?/s( .*)?$`)

// checkRows checks that the rows of the devices and the job appear once, intact and in
// order at the end of the screen.
func checkRows(t *testing.T, lines []string, width, devices int) {
	t.Helper()
	screen := strings.Join(lines, "\n")
	if len(lines) < devices+1 {
		t.Fatalf("%d lines for %d devices:\n%s", len(lines), devices, screen)
	}
	closing := -1
	for i, line := range lines[len(lines)-devices-1:] {
		name := fmt.Sprintf("GPU %d ", i)
		if i == devices {
			name = "total "
		}
		if !strings.HasPrefix(line, name) || !wholeRow.MatchString(line) {
			t.Errorf("row %d is not whole: %q in\n%s", i, line, screen)
		}
		if n := textWidth(line); n > width {
			t.Errorf("a row has %d columns of %d: %q", n, width, line)
		}
		if at := strings.Index(line, "]"); closing >= 0 && at != closing {
			t.Errorf("the bars are not in line:\n%s", screen)
		} else {
			closing = at
		}
	}
	for _, line := range lines[:len(lines)-devices-1] {
		if wholeRow.MatchString(line) || strings.Contains(line, "[=") {
			t.Errorf("a row was left behind: %q in\n%s", line, screen)
		}
	}
}

// nothingTorn checks everything that was ever written.
func nothingTorn(t *testing.T, term *terminal) {
	t.Helper()
	term.mu.Lock()
	defer term.mu.Unlock()
	if len(term.screen.torn) > 0 {
		t.Errorf("rows were wrapped: %q", term.screen.torn)
	}
	if len(term.screen.unknown) > 0 {
		t.Errorf("the terminal was sent %s", term.screen.unknown)
	}
}

func TestBars(t *testing.T) {
	for _, width := range []int{60, 80, 120, 200} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			t.Parallel()
			term := openTerminal(t, width, 24)
			b := watch(Options{Stderr: term.tty})
			if _, ok := b.Display.(*bars); !ok {
				t.Fatalf("a terminal gets %T", b.Display)
			}
			begin(b, 8)
			b.Event(orchestrator.Notice{Text: "a notice"})
			fmt.Fprintln(b, "a log line that is "+strings.Repeat("very ", 50)+"long")
			fmt.Fprint(b, "a log line without an end")
			eventually(t, "rows and lines", func() bool {
				lines := term.look()
				return len(lines) > 10 && slices.Contains(lines, "a log line without an end")
			})
			checkRows(t, term.look(), width, 8)

			b.Event(orchestrator.WorkerLost{Slot: 3, Device: "GPU 3", Fault: fault.New(fault.Worker, "gone").WithDetail("50%\r100%\n\x1b[2J\x1b[1;1Hlast\twords")})
			eventually(t, "the lost worker", func() bool {
				lines := term.look()
				return slices.ContainsFunc(lines, func(line string) bool {
					return strings.HasPrefix(line, "GPU 3 ") && strings.Contains(line, "  retrying ")
				})
			})

			finish(b)
			within(t, "Close", b.Close)
			fmt.Fprintln(b, "after the bars")
			eventually(t, "the line after the bars", func() bool { return slices.Contains(term.look(), "after the bars") })
			lines := term.look()
			if lines[len(lines)-1] != "after the bars" {
				t.Errorf("the line after the bars is not the last of %q", lines)
			}
			checkRows(t, lines[:len(lines)-1], width, 0)
			if row := lines[len(lines)-2]; !strings.Contains(row, "=]   100%") || strings.Contains(row, ">") || width > 60 && !strings.HasSuffix(row, "590.0k/s  in 3.4s") {
				t.Errorf("the finished row is %q", row)
			}
			want := []string{"a notice", "a log line without an end", "GPU 3: gone; starting another worker", "  | 100%", "  | last words"}
			if got := slices.DeleteFunc(lines, func(line string) bool { return !slices.Contains(want, line) }); !slices.Equal(got, want) {
				t.Errorf("lines above the bars: %q, want %q", got, want)
			}
			nothingTorn(t, term)
		})
	}
}

// In a narrow window texts are dropped, and the rest stays intact.
func TestBarsInNarrowWindows(t *testing.T) {
	s := &script{T: t}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 2_000_000, Slots: slots("GPU %d", 1)}}, orchestrator.ChunkStarted{Records: 31_360})
	s.at(2, orchestrator.Progress{Chunk: counts(15_000, 680), Records: 31_360, Job: counts(1_250_000, 680), Total: 2_000_000})
	for _, test := range []struct {
		width int
		total string
	}{
		{199, "total  [" + strings.Repeat("=", 42) + ">" + strings.Repeat(" ", 27) + "]    62%  1,250,680/2,000,000   7,840/s  ETA 1m36s   680 failed"},
		{99, "total  [================>           ]    62%  1,250,680/2,000,000   7,840/s  ETA 1m36s   680 failed"},
		{79, "total  [====>   ]    62%  1,250,680/2,000,000   7,840/s  ETA 1m36s   680 failed"},
		{78, "total  [=======>     ]    62%      1.3M/2.0M   7,840/s  ETA 1m36s   680 failed"},
		{59, "total  [====>    ]    62%   7,840/s  ETA 1m36s   680 failed"},
		{49, "total  [====>    ]    62%  ETA 1m36s   680 failed"},
		{39, "total  [=====>     ]    62%  ETA 1m36s"},
		{29, "total  [=======>     ]    62%"},
		{19, "total    62%"},
		{12, "total    62%"},
		{10, "to…    62%"},
	} {
		rows := s.rowsOf(test.width)
		got := rows[len(rows)-1]
		if got != test.total {
			t.Errorf("at %d columns: %q, want %q", test.width, got, test.total)
		}
		for _, row := range rows {
			if textWidth(row) > test.width {
				t.Errorf("at %d columns: %q has %d", test.width, row, textWidth(row))
			}
		}
	}
}

// Columns stay where they are while numbers change.
func TestColumnsDoNotJump(t *testing.T) {
	s := &script{T: t}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 2_000_000, Slots: slots("GPU %d", 1)}}, orchestrator.WorkerStarted{})
	s.rowsOf(79)
	want := s.table.columns(79)
	s.at(1, orchestrator.WorkerReady{}, orchestrator.ChunkStarted{Records: 2_000_000})
	for i := range 200 {
		done := counts(int64(i)*10_000, 0)
		s.at(1+float64(i*i)/100, progressed(0, done, done, 2_000_000))
		s.rowsOf(79)
		if got := s.table.columns(79); got != want {
			t.Fatalf("at %d: %+v, want %+v", i, got, want)
		}
	}
}

// More devices than fit a screen: a line counts them.
func TestBarsCompact(t *testing.T) {
	for _, test := range []struct{ devices, height int }{{20, 24}, {8, 6}} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			t.Parallel()
			term := openTerminal(t, 80, test.height)
			b := watchBars(term.tty)
			begin(b, test.devices)
			text := fmt.Sprintf("%d workers: %[1]d computing", test.devices)
			eventually(t, "the workers' line", func() bool { return slices.Contains(term.look(), text) })
			lines := term.look()
			if len(lines) != 3 || lines[1] != text {
				t.Errorf("the screen is %q", lines)
			}
			checkRows(t, lines, 80, 0)
			within(t, "Close", b.Close)
			nothingTorn(t, term)
		})
	}
}

// A window that becomes narrower, wider and lower while bars are drawn.
func TestBarsResized(t *testing.T) {
	t.Parallel()
	term := openTerminal(t, 120, 24)
	b := watchBars(term.tty)
	begin(b, 4)
	fmt.Fprintln(b, "a log line")
	eventually(t, "the line", func() bool { return slices.Contains(term.look(), "a log line") })
	for _, size := range [][2]int{{80, 24}, {60, 24}, {150, 24}, {45, 24}, {100, 24}} {
		term.resize(t, size[0], size[1])
		sent := len(term.bytes())
		fmt.Fprintln(b, "at", size[0])
		eventually(t, "a new frame", func() bool { return len(term.bytes()) > sent && strings.HasPrefix(last(term.look()), "total") })
		lines := term.look()
		for i, line := range lines {
			if i < len(lines)-5 && strings.Contains(line, "[") {
				t.Errorf("at %v a row was left behind: %q", size, lines)
			}
		}
		if !slices.Contains(lines, "a log line") || !strings.HasPrefix(lines[0], "2,000,000 records in") {
			t.Errorf("at %v lines are missing: %q", size, lines)
		}
	}
	// Fewer lines than rows: the lowest are shown, and nothing scrolls away.
	term.resize(t, 100, 4)
	fmt.Fprintln(b, "lower")
	eventually(t, "the line", func() bool { return slices.Contains(term.look(), "lower") })
	before := len(term.look())
	for i := range 5 {
		b.Event(progressed(0, counts(int64(i), 0), counts(int64(i), 0), 2_000_000))
		time.Sleep(refresh)
	}
	if lines := term.look(); len(lines) != before || !strings.HasPrefix(last(lines), "total") {
		t.Errorf("%d lines became %d: %q", before, len(lines), lines)
	}
	within(t, "Close", b.Close)
}

func last(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// The echo of a ^C, or of other keys, tears no row.
func TestBarsAfterTyping(t *testing.T) {
	t.Parallel()
	term := openTerminal(t, 80, 24)
	b := watchBars(term.tty)
	begin(b, 2)
	eventually(t, "rows", func() bool { return strings.HasPrefix(last(term.look()), "total") })
	if _, err := io.WriteString(term.tty, "^C"); err != nil {
		t.Fatal(err)
	}
	b.Event(orchestrator.Stopping{})
	eventually(t, "stopping", func() bool { return strings.HasSuffix(last(term.look()), "stopping") })
	checkRows(t, term.look(), 80, 2)
	within(t, "Close", b.Close)
}

// After ^Z and fg rows are drawn below what the shell wrote meanwhile, which is below the
// old ones. Not beside other tests: the signal is for all bars.
func TestBarsAfterStop(t *testing.T) {
	term := openTerminal(t, 80, 24)
	b := watchBars(term.tty)
	begin(b, 2)
	eventually(t, "rows", func() bool { return strings.HasPrefix(last(term.look()), "total") })
	if err := syscall.Kill(os.Getpid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	var lines []string
	eventually(t, "rows below the rows", func() bool { lines = term.look(); return len(lines) == 7 })
	checkRows(t, lines[:4], 80, 2)
	checkRows(t, lines[4:], 80, 2)
	within(t, "Close", b.Close)
	nothingTorn(t, term)
}

// A frame identical to the last one is not sent.
func TestBarsAtRest(t *testing.T) {
	t.Parallel()
	term := openTerminal(t, 80, 24)
	b := watchBars(term.tty)
	b.Event(orchestrator.Planned{Plan: orchestrator.Plan{Records: 10, Slots: slots("GPU %d", 2)}})
	eventually(t, "rows", func() bool { return strings.HasPrefix(last(term.look()), "total") })
	sent := term.bytes()
	time.Sleep(3 * refresh)
	if more := strings.TrimPrefix(term.bytes(), sent); more != "" {
		t.Errorf("sent again: %q", more)
	}
	within(t, "Close", b.Close)
}

func TestBarsClose(t *testing.T) {
	for name, use := range map[string]func(b watched, term *terminal){
		"no event": func(watched, *terminal) {},
		"only planned": func(b watched, _ *terminal) {
			b.Event(orchestrator.Planned{Plan: orchestrator.Plan{Records: 10, Slots: slots("GPU %d", 2)}})
		},
		"no devices":     func(b watched, _ *terminal) { b.Event(orchestrator.Planned{}); finish(b) },
		"unfinished":     func(b watched, _ *terminal) { begin(b, 4); time.Sleep(refresh) },
		"at once":        func(b watched, _ *terminal) { begin(b, 16) },
		"finished":       func(b watched, _ *terminal) { begin(b, 4); time.Sleep(refresh); finish(b) },
		"all events":     func(b watched, _ *terminal) { play(b) },
		"planned twice":  func(b watched, _ *terminal) { begin(b, 2); begin(b, 2) },
		"unknown slot":   func(b watched, _ *terminal) { begin(b, 1); b.Event(progressed(7, counts(1, 0), counts(1, 0), 2)) },
		"window of none": func(b watched, term *terminal) { begin(b, 2); time.Sleep(refresh) },
		"terminal gone":  func(b watched, term *terminal) { begin(b, 2); term.master.Close(); time.Sleep(2 * refresh) },
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			width, height := 80, 24
			if name == "window of none" {
				width, height = 0, 0 // a serial line: unknown
			}
			term := openTerminal(t, max(width, 1), max(height, 1))
			if width == 0 {
				_ = control(term.master, func(fd int) error { return setSize(fd, 0, 0) })
			}
			b := watchBars(term.tty)
			use(b, term)
			within(t, "Close", b.Close)
			within(t, "a second Close", b.Close)
			within(t, "an event after Close", func() { begin(b, 2) })
		})
	}
}

// All lines from many goroutines come out whole, even while the bars are being closed.
func TestBarsUnderLoad(t *testing.T) {
	t.Parallel()
	term := openTerminal(t, 80, 24)
	b := watchBars(term.tty)
	begin(b, 4)
	const writers, each = 4, 200
	var group sync.WaitGroup
	for w := range writers {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range each {
				fmt.Fprintf(b, "writer %d line %d\n", w, i)
				if i%20 == 0 {
					time.Sleep(10 * time.Millisecond)
				}
			}
		}()
	}
	for i := range 5000 {
		b.Event(progressed(i%4, counts(int64(i), 0), counts(int64(i), 0), 2_000_000))
	}
	within(t, "Close", b.Close)
	group.Wait()
	fmt.Fprintln(b, "the end")
	eventually(t, "the end", func() bool { return last(term.look()) == "the end" })
	seen := make(map[string]bool)
	for _, line := range term.look() {
		seen[line] = true
	}
	for w := range writers {
		for i := range each {
			if line := fmt.Sprintf("writer %d line %d", w, i); !seen[line] {
				t.Errorf("%q is not on the screen", line)
			}
		}
	}
	nothingTorn(t, term)
}

// After ^S the terminal accepts nothing, but the job continues.
func TestBarsOnAStoppedTerminal(t *testing.T) {
	t.Parallel()
	term := openTerminal(t, 80, 24)
	b := watchBars(term.tty)
	begin(b, 4)
	eventually(t, "rows", func() bool { return strings.HasPrefix(last(term.look()), "total") })
	if _, err := term.master.Write([]byte{'S' - '@'}); err != nil {
		t.Fatal(err)
	}
	within(t, "the job", func() {
		for i := range 1000 {
			b.Event(progressed(0, counts(int64(i), 0), counts(int64(i), 0), 2_000_000))
			b.Event(orchestrator.Notice{Text: strings.Repeat("x", 70)})
			if i%250 == 0 {
				time.Sleep(refresh)
			}
		}
	})
	if _, err := term.master.Write([]byte{'Q' - '@'}); err != nil {
		t.Fatal(err)
	}
	within(t, "Close", b.Close)
}

// TestNoBarsOverRecords: no bars overwrite records that go to the terminal.
func TestNoBarsOverRecords(t *testing.T) {
	term := openTerminal(t, 80, 24)
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	os.Stdout = term.tty
	for _, records := range [][]string{{"-"}, {term.tty.Name()}, {"out.jsonl", term.tty.Name()}} {
		d := New(Options{Stderr: term.tty, Records: records})
		if _, ok := d.(*lines); !ok {
			t.Errorf("records to %q: %T", records, d)
		}
		d.Close()
	}
	file, _ := file(t)
	os.Stdout = file
	for _, records := range [][]string{{"-"}, {file.Name(), ""}, {"/dev/null"}} {
		d := New(Options{Stderr: term.tty, Records: records})
		if _, ok := d.(*lines); ok {
			t.Errorf("records to %q: no bars", records)
		}
		d.Close()
	}
}
