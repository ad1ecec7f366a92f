package progress

import (
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/gpurun/gpurun/orchestrator"
)

const (
	// compactAbove is the number of devices above which bars would not fit a
	// screen: one line counts the workers then.
	compactAbove = 16
	refresh      = 150 * time.Millisecond
)

// bars draws on a terminal: a bar for the current chunk of each device, and one
// for the whole.
//
// Events only change the state; a row is made of it when a frame is drawn. So
// thousands of events a second cost nothing, and a terminal that does not read
// holds nobody up.
type bars struct {
	state  state
	screen screen

	mu        sync.Mutex
	container *mpb.Progress // nil unless there are bars
	devices   []*mpb.Bar
	total     *mpb.Bar
	resumed   chan os.Signal // SIGCONT: the shell had the terminal meanwhile
	closed    bool
}

func newBars(out *os.File) *bars { return &bars{screen: screen{out: out}} }

func (b *bars) Event(event orchestrator.Event) {
	b.state.take(event, time.Now())
	if text := notice(event); text != "" {
		_, _ = io.WriteString(b, text+"\n")
	}
	if _, ok := event.(orchestrator.Planned); ok {
		b.build()
	}
}

// Write prints lines above the bars, or straight to the terminal when there are
// none.
func (b *bars) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.container == nil {
		return b.screen.out.Write(p)
	}
	b.screen.print(p)
	return len(p), nil
}

// build makes the bars.
func (b *bars) build() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.container != nil || b.closed {
		return
	}
	b.watchResumed()
	b.container = mpb.New(mpb.WithConsoleWriter(&b.screen), mpb.WithRefreshRate(refresh))
	s := &b.state
	_, height := b.screen.size()
	if s.compact = len(s.devices) > min(compactAbove, height-2); s.compact {
		b.devices = append(b.devices, b.bar(func(_ int, now time.Time) string { return s.workersText(now) }))
	} else {
		for _, device := range s.devices {
			b.devices = append(b.devices, b.bar(func(width int, now time.Time) string {
				return s.columns(width, now).text(s.deviceRow(device, now))
			}))
		}
	}
	b.total = b.bar(func(width int, now time.Time) string {
		return s.columns(width, now).text(s.totalRow(now))
	})
}

// watchResumed leaves alone what the shell, and the user, wrote while the job was stopped.
func (b *bars) watchResumed() {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	go func() {
		for range resumed {
			b.screen.below.Store(true)
		}
	}()
	b.resumed = resumed
}

// bar is a row that is drawn from the state. To mpb it has no size: it ends
// when Close says so.
func (b *bars) bar(row func(width int, now time.Time) string) *mpb.Bar {
	draw := func(w io.Writer, statistics decor.Statistics) error {
		b.state.mu.Lock()
		defer b.state.mu.Unlock()
		width := statistics.AvailableWidth
		_, err := io.WriteString(w, shorten(row(width, time.Now()), width)) // one line, whatever comes
		return err
	}
	return b.container.New(0, filler(draw), mpb.BarFillerTrim())
}

// Close ends the bars; the whole stays on the screen, devices' bars do not.
func (b *bars) Close() {
	b.mu.Lock() // to the end: lines that come now must not tear the last frame
	defer b.mu.Unlock()
	b.closed = true
	if b.container == nil {
		return
	}
	for _, bar := range b.devices {
		bar.Abort(true)
	}
	b.total.Abort(false)
	b.container.Wait()
	b.container = nil
	signal.Stop(b.resumed)
	close(b.resumed)
	_, _ = b.screen.out.Write(b.screen.waiting()) // came after the last frame
}

// filler is a function as mpb takes it.
type filler mpb.BarFillerFunc

func (f filler) Build() mpb.BarFiller { return mpb.BarFillerFunc(f) }
