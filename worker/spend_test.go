package worker

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/figures"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// A request that was given back and used again is no reason to wait forever: the worker reports the
// limit each time it meets it.
func TestSpentAfterARefund(t *testing.T) {
	var s spend
	if err := s.open(wire.Setup{Figures: filepath.Join(t.TempDir(), "figures"), Spend: wire.Spend{Requests: 1}}); err != nil {
		t.Fatal(err)
	}
	defer s.figures.Close()
	now := time.Now()
	if s.reached() || !s.reserve() || !s.reached() || s.isOver(1, now) {
		t.Fatal("the only request was not sent, or not awaited")
	}
	s.add(plugins.Answer{Verdict: plugins.Later}) // it was not sent
	if !s.isOver(0, now) {
		t.Error("a record could not be sent, and the worker does not report it")
	}
	if s.reached() || s.isOver(0, now.Add(time.Hour)) {
		t.Error("there is a request left")
	}
	if !s.reserve() || !s.reached() {
		t.Fatal("the request that was given back was not sent")
	}
	s.add(plugins.Answer{Verdict: plugins.Unchanged, Figures: map[string]int64{figures.Requests: 1}})
	if s.isOver(0, now) || !s.isOver(0, now.Add(reportEvery)) {
		t.Error("the worker does not report that the limit is reached")
	}
}
