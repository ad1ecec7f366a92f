package progress

import (
	"fmt"
	"os"
	"sync"
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
// Numbers and words come from state when a frame is drawn; the bars themselves
// only hold how full they are.
type bars struct {
	state     state
	container *mpb.Progress
	out       *os.File

	mu      sync.Mutex
	devices []*mpb.Bar
	compact *mpb.Bar
	total   *mpb.Bar
	closed  bool
}

func newBars(out *os.File) *bars {
	return &bars{out: out, container: mpb.New(mpb.WithOutput(out), mpb.WithRefreshRate(refresh))}
}

func (b *bars) Event(event orchestrator.Event) {
	b.state.take(event)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if text := notice(event); text != "" {
		b.print([]byte(text + "\n"))
	}
	if _, ok := event.(orchestrator.Planned); ok {
		b.build()
	}
	b.update()
}

// Write prints lines above the bars.
func (b *bars) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.print(p)
	return len(p), nil
}

// print goes through the container while there are bars, which would be torn
// otherwise, and straight to the terminal when there are none, when the
// container would lose it.
func (b *bars) print(p []byte) {
	if b.total != nil && !b.closed {
		if _, err := b.container.Write(p); err == nil {
			return
		}
	}
	_, _ = b.out.Write(p)
}

// build makes the bars. They are made without a total: only such bars take one
// later, and take another with each chunk.
func (b *bars) build() {
	s := &b.state
	if len(s.devices) > compactAbove {
		b.compact = b.container.New(0, mpb.NopStyle(), mpb.PrependDecorators(b.text(s.workersText)))
	} else {
		for _, device := range s.devices {
			b.devices = append(b.devices, b.bar(
				decor.Name(device.name, decor.WCSyncSpaceR),
				b.text(func() string { return s.deviceText(device, time.Now()) }),
			))
		}
	}
	b.total = b.bar(
		decor.Name("total", decor.WCSyncSpaceR),
		b.text(func() string { return s.totalText(time.Now()) }),
	)
}

func (b *bars) bar(name, text decor.Decorator) *mpb.Bar {
	style := mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]")
	return b.container.New(0, style, mpb.PrependDecorators(name), mpb.AppendDecorators(text))
}

// text is a decorator that reads the state.
func (b *bars) text(f func() string) decor.Decorator {
	return decor.Any(func(decor.Statistics) string {
		b.state.mu.Lock()
		defer b.state.mu.Unlock()
		return f()
	}, decor.WCSyncSpaceR)
}

// update fills the bars as far as the state says.
func (b *bars) update() {
	if b.total == nil {
		return
	}
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	for i, bar := range b.devices {
		done, size := b.state.chunkOf(b.state.devices[i])
		fill(bar, done, size)
	}
	fill(b.total, b.state.job.Records, b.state.total)
}

func fill(bar *mpb.Bar, done, size int64) {
	bar.SetTotal(max(size, 1), false)
	bar.SetCurrent(min(done, max(size, 0)))
}

// Close ends the bars; the whole stays on the screen, devices' bars do not.
func (b *bars) Close() {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.update()
	b.closed = true
	b.mu.Unlock()
	for _, bar := range append(b.devices, b.compact) {
		if bar != nil {
			bar.Abort(true)
		}
	}
	if b.total != nil {
		b.total.Abort(false)
	}
	b.container.Wait()
}

// deviceText stands behind a device's bar; the caller holds the lock.
func (s *state) deviceText(d *deviceState, now time.Time) string {
	if p := s.phaseOf(d); p != computing && p != ready {
		return string(p)
	}
	done, size := s.chunkOf(d)
	return fmt.Sprintf("%s/%s  %s", Count(done), Count(size), rateText(d.pace.rate(now)))
}

// totalText stands behind the whole's bar; the caller holds the lock.
func (s *state) totalText(now time.Time) string {
	text := Count(s.job.Records)
	if s.total >= 0 {
		text += "/" + Count(s.total)
	}
	text += "  " + rateText(s.pace.rate(now))
	if eta := s.pace.eta(now, s.total); eta > 0 {
		text += "  ETA " + durationText(eta)
	}
	if s.job.Failed > 0 {
		text += "  " + Count(s.job.Failed) + " failed"
	}
	return text
}
