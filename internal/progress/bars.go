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

	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

const (
	// compactAbove is the number of devices above which one line counts the workers,
	// because their bars would not fit the screen.
	compactAbove = 16
	refresh      = 150 * time.Millisecond
)

// bars draws on a terminal: a bar for the current chunk of each device, and one for the
// job.
//
// Rows are rendered when a frame is drawn. So thousands of events per second are cheap, and a
// stalled terminal does not block the job.
type bars struct {
	view   func() view.View
	screen screen

	drawing sync.Mutex // guards table
	table   table

	mu        sync.Mutex
	container *mpb.Progress // nil unless there are bars
	devices   []*mpb.Bar
	total     *mpb.Bar
	resumed   chan os.Signal // receives SIGCONT: the shell used the terminal meanwhile
	closed    bool
}

func newBars(out *os.File, v func() view.View) *bars {
	return &bars{view: v, screen: screen{out: out}}
}

func (b *bars) Event(event orchestrator.Event) {
	printLine(b, notice(event))
	if _, ok := event.(orchestrator.Planned); ok {
		b.build()
	}
}

// Write prints lines above the bars, or directly to the terminal if there are none.
func (b *bars) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.container == nil {
		return b.screen.out.Write(p)
	}
	b.screen.print(p)
	return len(p), nil
}

// build creates the bars.
func (b *bars) build() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.container != nil || b.closed {
		return
	}
	b.watchResumed()
	b.container = mpb.New(mpb.WithConsoleWriter(&b.screen), mpb.WithRefreshRate(refresh))
	t := &b.table
	t.view = b.view()
	_, height := b.screen.size()
	devices := len(groups(t.view))
	if t.compact = devices > min(compactAbove, height-2); t.compact {
		b.devices = append(b.devices, b.bar(func(int) string { return workersText(t.view) }))
	} else {
		for i := range devices {
			b.devices = append(b.devices, b.bar(func(width int) string {
				if all := groups(t.view); i < len(all) {
					return t.columns(width).text(all[i].row())
				}
				return ""
			}))
		}
	}
	b.total = b.bar(func(width int) string { return t.columns(width).text(totalRow(t.view)) })
}

// watchResumed preserves what the shell and the user wrote while the job was stopped.
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

// bar adds a row. It has no total for mpb: Close ends it.
func (b *bars) bar(row func(width int) string) *mpb.Bar {
	draw := func(w io.Writer, statistics decor.Statistics) error {
		b.drawing.Lock()
		defer b.drawing.Unlock()
		if time.Since(b.table.view.Time) > refresh/2 { // all rows of a frame show the same view
			b.table.view = b.view()
		}
		width := statistics.AvailableWidth
		_, err := io.WriteString(w, shorten(row(width), width)) // always a single line
		return err
	}
	bar, _ := b.container.Add(0, mpb.BarFillerFunc(draw), mpb.BarFillerTrim()) // fails only after Wait
	return bar
}

// Close removes the devices' bars and leaves the job's bar on the screen.
func (b *bars) Close() {
	b.mu.Lock() // until the end: concurrent lines must not tear the last frame
	defer b.mu.Unlock()
	b.closed = true
	if b.container == nil {
		return
	}
	b.drawing.Lock()
	b.table.view = b.view()
	b.drawing.Unlock()
	for _, bar := range b.devices {
		bar.Abort(true)
	}
	b.total.Abort(false)
	b.container.Wait()
	b.container = nil
	signal.Stop(b.resumed)
	close(b.resumed)
	_, _ = b.screen.out.Write(b.screen.waiting()) // printed after the last frame
}
