package gpu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestXidFault(t *testing.T) {
	var lost []uint64
	for xid := range uint64(1000) {
		if XidFault(xid) {
			lost = append(lost, xid)
		}
	}
	if !slices.Equal(lost, []uint64{48, 62, 64, 74, 79, 95, 119, 120}) {
		t.Errorf("lost: %v", lost)
	}
	for _, xid := range []uint64{13, 31, 43, 45, 68, 109} {
		if xids[xid].whose != application {
			t.Errorf("Xid %d is not the application's", xid)
		}
	}
	gpu := Device{Kind: GPU, Index: 3, Token: "3"}
	for xid, want := range map[uint64]string{79: "GPU 3: Xid 79 (fallen off the bus)", 31: "GPU 3: Xid 31 (memory page fault)", 999: "GPU 3: Xid 999"} {
		if got := (XidEvent{gpu, xid}).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// watcher runs WatchXids during a test.
type watcher struct {
	t      *testing.T
	events chan XidEvent
	stop   context.CancelFunc
	ended  chan error
}

func startWatch(t *testing.T, api API, devices []Device) *watcher {
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{t: t, events: make(chan XidEvent, 16), stop: cancel, ended: make(chan error, 1)}
	go func() {
		w.ended <- WatchXids(ctx, devices, options(api), func(e XidEvent) { w.events <- e })
	}()
	t.Cleanup(cancel)
	return w
}

func (w *watcher) next() string {
	w.t.Helper()
	select {
	case e := <-w.events:
		return e.String()
	case <-time.After(5 * time.Second):
		w.t.Fatal("no event")
		return ""
	}
}

// end stops the watch within the given time and checks that nothing more was reported.
func (w *watcher) end(within time.Duration) {
	w.t.Helper()
	begin := time.Now()
	w.stop()
	if err := <-w.ended; err != nil {
		w.t.Errorf("error: %v", err)
	}
	if took := time.Since(begin); took > within {
		w.t.Errorf("it took %s to end", took)
	}
	select {
	case e := <-w.events:
		w.t.Errorf("unasked: %v", e)
	default:
	}
}

// emit delivers an event to a waiting watcher.
func (m *fakeMachine) emit(index int, xid uint64) {
	m.t.Helper()
	select {
	case m.events <- fakeEvent{index, xid}:
	case <-time.After(5 * time.Second):
		m.t.Fatal("no watcher waits for events")
	}
}

// shutDown checks that NVML was shut down properly.
func (m *fakeMachine) shutDown() {
	m.t.Helper()
	<-m.ended
	calls := m.called()
	if calls[len(calls)-1] != "Shutdown" {
		m.t.Errorf("the last call is %s", calls[len(calls)-1])
	}
	sets, freed := 0, 0
	for _, call := range calls {
		switch call {
		case "NewEventSet":
			sets++
		case "Free":
			freed++
		}
	}
	if sets != freed && !m.noEvents {
		m.t.Errorf("%d sets, %d of them freed", sets, freed)
	}
}

func inventory(t *testing.T, n int) []Device {
	t.Helper()
	inv, err := Discover(t.Context(), options(newFake(t, same(n)...)))
	if err != nil {
		t.Fatal(err)
	}
	return inv.Devices
}

func TestWatchXids(t *testing.T) {
	m := newFake(t, same(4)...)
	devices := inventory(t, 4)
	// GPU 0 is not ours; GPU 1 serves two devices; GPU 3 is known only by its index.
	unknown := devices[3]
	unknown.UUID = ""
	w := startWatch(t, m, []Device{devices[1], devices[1], devices[2], unknown})
	m.emit(2, 31)
	m.emit(0, 79)
	m.emit(1, 48)
	m.emit(3, 13)
	for _, want := range []string{
		"GPU 2: Xid 31 (memory page fault)",
		"GPU 1: Xid 48 (double-bit ECC error)", "GPU 1: Xid 48 (double-bit ECC error)",
		"GPU 3: Xid 13 (exception in a kernel)",
	} {
		if got := w.next(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	w.end(leaveTime / 2)
	m.shutDown()
}

// A lost GPU is reported once, with or without an event, and the others are still watched.
func TestWatchXidsLostGPU(t *testing.T) {
	m := newFake(t, same(3)...)
	w := startWatch(t, m, inventory(t, 3))
	m.emit(0, 79)
	if got := w.next(); got != "GPU 0: Xid 79 (fallen off the bus)" {
		t.Errorf("got %s", got)
	}
	m.lose(0)
	m.lose(1)
	if got := w.next(); got != "GPU 1: Xid 79 (fallen off the bus)" {
		t.Errorf("got %s", got)
	}
	m.emit(2, 63)
	if got := w.next(); !strings.HasPrefix(got, "GPU 2: Xid 63") {
		t.Errorf("got %s", got)
	}
	m.lose(2)
	if got := w.next(); !strings.HasPrefix(got, "GPU 2: Xid 79") {
		t.Errorf("got %s", got)
	}
	m.shutDown() // nothing remains to be watched
	w.end(leaveTime / 2)
}

// An API need not support events.
type mute struct{ API }

// Whatever is wrong, nothing is reported, the watch does not end early, and it does not
// hang at the end.
func TestWatchXidsInVain(t *testing.T) {
	gpus := inventory(t, 2)
	for name, test := range map[string]struct {
		damage  func(*fakeMachine)
		devices []Device
		calls   string // those that may be made; empty: any
		hangs   bool
	}{
		"no driver":    {damage: func(m *fakeMachine) { m.initErr = ErrNoLibrary }, devices: gpus, calls: "Init"},
		"not built":    {damage: func(m *fakeMachine) { m.initErr = ErrNotBuilt }, devices: gpus, calls: "Init"},
		"bad driver":   {damage: func(m *fakeMachine) { m.initErr = errors.New("versions differ") }, devices: gpus, calls: "Init"},
		"count fails":  {damage: func(m *fakeMachine) { m.countErr = ErrLost }, devices: gpus, calls: "Init Count Shutdown"},
		"no sets":      {damage: func(m *fakeMachine) { m.noEvents = true }, devices: gpus},
		"no events":    {damage: func(m *fakeMachine) { m.gpus[0].noEvents, m.gpus[1].noEvents = true, true }, devices: gpus},
		"waits fail":   {damage: func(m *fakeMachine) { m.waitErr = errUnsupported }, devices: gpus},
		"reports lost": {damage: func(m *fakeMachine) { m.waitErr = ErrLost }, devices: gpus},
		"no handles":   {damage: func(m *fakeMachine) { m.gpus[0].forbidden, m.gpus[1].forbidden = true, true }, devices: gpus},
		"other GPUs":   {devices: []Device{{Kind: GPU, UUID: "GPU-x", Token: "0"}}},
		"unknown which": {devices: []Device{{Kind: GPU, Index: 1, Token: "1"}},
			damage: func(m *fakeMachine) { m.gpus[1].uuid = "" }},
		"CPUs":        {devices: cpuDevices(2), calls: "-"},
		"MIG":         {devices: []Device{migDevice("MIG-a", 0)}, calls: "-"},
		"no devices":  {calls: "-"},
		"init hangs":  {damage: func(m *fakeMachine) { m.hangInit = make(chan struct{}) }, devices: gpus, hangs: true},
		"count hangs": {damage: func(m *fakeMachine) { m.hangCount = make(chan struct{}) }, devices: gpus, hangs: true},
		"wait hangs":  {damage: func(m *fakeMachine) { m.hangWait = make(chan struct{}) }, devices: gpus, hangs: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newFake(t, same(2)...)
			if test.damage != nil {
				test.damage(m)
			}
			w := startWatch(t, m, test.devices)
			select {
			case <-w.ended:
				t.Fatal("it ended by itself")
			case <-time.After(30 * time.Millisecond):
			}
			within := leaveTime / 2
			if test.hangs {
				within = 2 * leaveTime
			}
			w.end(within)
			calls := m.called()
			if allowed := strings.Fields(strings.Trim(test.calls, "-")); test.calls != "" && !slices.Equal(calls, allowed) {
				t.Errorf("calls %v, want %v", calls, allowed)
			}
			// If the driver returns after the watch ended, no further call is made.
			for _, hang := range []chan struct{}{m.hangInit, m.hangCount, m.hangWait} {
				if hang != nil {
					close(hang)
					m.shutDown()
				}
			}
			// A wait that fails at once must not become a busy loop.
			waits := 0
			for _, call := range calls {
				if call == "Wait" {
					waits++
				}
			}
			if m.waitErr != nil && waits != 1 {
				t.Errorf("%d waits", waits)
			}
		})
	}
	w := startWatch(t, mute{newFake(t, same(2)...)}, gpus)
	w.end(leaveTime / 2)
}

// watchMode makes the test binary a program that prints the events of this
// machine's GPUs, a line each, until its input ends.
const watchMode = "GPU_TEST_WATCH"

func watchMain() int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	devices := []Device{{Kind: GPU, PCIOrder: true, Token: "0"}}
	if os.Getenv("NVMLSTUB_INIT") == "" {
		inv, err := Discover(ctx, Options{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		devices = inv.Devices
	}
	fmt.Println("watching")
	if err := WatchXids(ctx, devices, Options{}, func(e XidEvent) { fmt.Println(e) }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// watchProgram is such a running program.
type watchProgram struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string
}

func startWatchProgram(t *testing.T, env ...string) *watchProgram {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0", watchMode + "=1"}, env...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &watchProgram{t: t, cmd: cmd, stdin: stdin, lines: make(chan string)}
	go func() {
		defer close(p.lines)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			p.lines <- in.Text()
		}
	}()
	p.want("watching")
	return p
}

func (p *watchProgram) want(line string) {
	p.t.Helper()
	select {
	case got := <-p.lines:
		if got != line {
			p.t.Errorf("%q, want %q", got, line)
		}
	case <-time.After(10 * time.Second):
		p.t.Fatalf("no %q", line)
	}
}

func (p *watchProgram) end(within time.Duration) {
	p.t.Helper()
	begin := time.Now()
	p.stdin.Close()
	for line := range p.lines {
		p.t.Errorf("unasked: %q", line)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Error(err)
	}
	if took := time.Since(begin); took > within {
		p.t.Errorf("it took %s to end", took)
	}
}

// The real binding, with a stub in place of the driver's library.
func TestStubEvents(t *testing.T) {
	stub, dir := buildStub(t), t.TempDir()
	events, log := filepath.Join(dir, "events"), filepath.Join(dir, "log")
	write := func(lines string) {
		t.Helper()
		f, err := os.OpenFile(events, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(lines); err != nil {
			t.Fatal(err)
		}
	}
	write("1 31\n")
	p := startWatchProgram(t, stub, "NVMLSTUB_GPUS=3", "NVMLSTUB_EVENTS="+events, "NVMLSTUB_LOG="+log)
	p.want("GPU 1: Xid 31 (memory page fault)")
	write("7 79\n0 48\n2 13\n")
	p.want("GPU 0: Xid 48 (double-bit ECC error)")
	p.want("GPU 2: Xid 13 (exception in a kernel)")
	write("1 lost\n")
	p.want("GPU 1: Xid 79 (fallen off the bus)")
	write("1 13\n2 94\n")
	p.want("GPU 2: Xid 94 (memory error, contained to one application)")
	p.end(2 * time.Second)

	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	names, threads := stubCalls(string(text))
	const inventory, watch = 1 + 3, 1 // a thread for each GPU and one for the rest
	if len(threads) > inventory+watch || names[len(names)-1] != "nvmlShutdown" || names[len(names)-2] != "nvmlEventSetFree" {
		t.Errorf("threads %v, last calls %v", threads, names[len(names)-2:])
	}
}

// stubCalls reads the calls in NVMLSTUB_LOG.
func stubCalls(log string) (names []string, threads map[string]bool) {
	threads = map[string]bool{}
	for line := range strings.Lines(log) {
		name, thread, _ := strings.Cut(strings.TrimSpace(line), " ")
		names = append(names, name)
		threads[thread] = true
	}
	return names, threads
}

func TestStubEventsInVain(t *testing.T) {
	stub := buildStub(t)
	for _, variable := range []string{"NVMLSTUB_EVENTS=none", "NVMLSTUB_EVENTS=hang", "NVMLSTUB_INIT=fail", "NVMLSTUB_INIT=hang", "NVMLSTUB_GPUS=2"} {
		t.Run(variable, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "log")
			p := startWatchProgram(t, stub, variable, "NVMLSTUB_LOG="+log)
			time.Sleep(50 * time.Millisecond)
			p.end(3 * leaveTime)
			text, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			if names, _ := stubCalls(string(text)); strings.HasPrefix(variable, "NVMLSTUB_INIT") && !slices.Equal(names, []string{"nvmlInit"}) {
				t.Errorf("after a failed Init: %v", names)
			}
		})
	}
}
