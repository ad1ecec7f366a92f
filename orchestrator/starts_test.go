package orchestrator

import (
	"testing"
	"time"
)

// The first worker is the one whose kernel was open first. The others are summarized by phase.
func TestStartsOf(t *testing.T) {
	worker := func(opened, importing, loading int) WorkerReport {
		return WorkerReport{Opened: time.Unix(int64(opened), 0), Start: Start{Importing: time.Duration(importing), Loading: time.Duration(loading)}}
	}
	r := startsOf([]WorkerReport{worker(3, 2, 30), worker(1, 900, 40), worker(2, 1, 20), {}, worker(4, 3, 10)})
	if r == nil || r.First.Importing != 900 || r.Further != 3 || r.Typical.Importing != 2 || r.Typical.Loading != 20 {
		t.Errorf("%+v", r)
	}
	if r := startsOf([]WorkerReport{worker(1, 900, 40), {}}); r == nil || r.Further != 0 || r.Typical != nil {
		t.Errorf("%+v", r)
	}
	if r := startsOf([]WorkerReport{{}}); r != nil {
		t.Errorf("%+v", r)
	}
}
