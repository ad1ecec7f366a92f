package progress

import (
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

// lineInterval is how often a log gets a line: often enough to show progress, rarely
// enough for a nine-hour job.
const lineInterval = 5 * time.Second

// lines is the display for logs and pipes: a line every interval.
type lines struct {
	state state
	mu    sync.Mutex // guards out
	out   io.Writer
	stop  chan struct{}
	once  sync.Once
	ended sync.WaitGroup
}

func newLines(out io.Writer, interval time.Duration) *lines {
	l := &lines{out: out, stop: make(chan struct{})}
	l.ended.Add(1)
	go l.run(interval)
	return l
}

func (l *lines) run(interval time.Duration) {
	defer l.ended.Done()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if line := l.state.line(time.Now()); line != "" {
				_, _ = l.Write([]byte(line + "\n"))
			}
		case <-l.stop:
			return
		}
	}
}

func (l *lines) Event(event orchestrator.Event) {
	l.state.take(event, time.Now())
	if text := notice(event); text != "" {
		_, _ = l.Write([]byte(text + "\n"))
	}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *lines) Close() {
	l.once.Do(func() { close(l.stop) })
	l.ended.Wait()
}

// line describes the job in one line, "" before the job is planned.
func (s *state) line(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.slots) == 0 {
		return ""
	}
	parts := []string{plural(s.done(), "record")}
	switch size, about := s.size(); {
	case about:
		parts[0] = fmt.Sprintf("%s of about %s (%.0f %%)", Count(s.done()), plural(size, "record"), 100*float64(s.done())/float64(size))
	case size >= 0:
		percent := 100.0
		if size > 0 {
			percent = math.Floor(1000*float64(s.done())/float64(size)) / 10
		}
		parts[0] = fmt.Sprintf("%s of %s (%.1f %%)", Count(s.done()), plural(size, "record"), percent)
	}
	if rate := s.rate(now); rate > 0 {
		parts = append(parts, rateText(rate))
	}
	if text := s.tokenText(now); text != "" {
		parts = append(parts, text)
	}
	if eta, known := s.eta(now); known {
		parts = append(parts, "ETA "+etaText(eta))
	} else if s.end == nil && s.paused() {
		parts = append(parts, "paused")
	}
	if s.job.Failed > 0 {
		parts = append(parts, Count(s.job.Failed)+" failed")
	}
	parts = append(parts, s.workersText(now))
	if text := s.heatText(); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// workersText counts the workers in each phase. The caller must hold the lock.
func (s *state) workersText(now time.Time) string {
	counts := s.phases(now)
	var parts []string
	for _, p := range []phase{computing, fetching, held, opening, ready, waiting, restarting, lost, yielded} {
		if counts[p] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[p], p))
		}
	}
	return fmt.Sprintf("%s: %s", plural(int64(len(s.slots)), "worker"), strings.Join(parts, ", "))
}
