package progress

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// lineInterval is how often a log gets a line: often enough to show progress, rarely
// enough for a nine-hour job.
const lineInterval = 5 * time.Second

// lines is the display for logs and pipes: a line every interval.
type lines struct {
	view  func() view.View
	mu    sync.Mutex // guards out
	out   io.Writer
	stop  chan struct{}
	once  sync.Once
	ended sync.WaitGroup
}

func newLines(out io.Writer, interval time.Duration, v func() view.View) *lines {
	l := &lines{view: v, out: out, stop: make(chan struct{})}
	l.ended.Go(func() { l.run(interval) })
	return l
}

func (l *lines) run(interval time.Duration) {
	for {
		select {
		case <-time.After(interval):
			printLine(l, jobLine(l.view()))
		case <-l.stop:
			return
		}
	}
}

func (l *lines) Event(event orchestrator.Event) { printLine(l, notice(event)) }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *lines) Close() {
	l.once.Do(func() { close(l.stop) })
	l.ended.Wait()
}

// jobLine describes the job in one line, "" before the job is planned.
func jobLine(v view.View) string {
	if len(v.Workers) == 0 {
		return ""
	}
	done := v.Reached()
	parts := []string{plural(done, "record")}
	switch size, about := v.Size(); {
	case about:
		parts[0] = fmt.Sprintf("%s of about %s (%.0f%%)", Count(done), plural(size, "record"), 100*float64(done)/float64(size))
	case size >= 0:
		percent := 100.0
		if size > 0 {
			percent = math.Floor(1000*float64(done)/float64(size)) / 10
		}
		parts[0] = fmt.Sprintf("%s of %s (%.1f%%)", Count(done), plural(size, "record"), percent)
	}
	if rate := rateOf(v); rate > 0 {
		parts = append(parts, rateText(rate))
	}
	parts = append(parts, tokenText(v))
	if v.Report == nil && paused(v) {
		parts = append(parts, "paused")
	} else {
		parts = append(parts, remaining(v))
	}
	if v.Done.Failed > 0 {
		parts = append(parts, Count(v.Done.Failed)+" failed")
	}
	parts = append(parts, workersText(v), heatText(v))
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}

// workersText counts the workers in each phase.
func workersText(v view.View) string {
	counts := phases(v.Workers)
	var parts []string
	for _, p := range phaseOrder {
		if counts[p] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[p], p))
		}
	}
	return fmt.Sprintf("%s: %s", plural(int64(len(v.Workers)), "worker"), strings.Join(parts, ", "))
}
