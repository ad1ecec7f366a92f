package worker

import (
	"testing"

	"github.com/gpurun/gpurun/plugins"
)

// When the drain timeout expires, the answers that have just arrived are kept for the next run.
func TestAbandonKeepsAnswers(t *testing.T) {
	w := newWorker(t, "patient", 16)
	w.setup.Figures = t.TempDir() + "/figures"
	l, err := w.beginAll(t.Context(), assign(t, `{"id":0,"until":9}`+"\n"+`{"id":1,"until":9}`+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	c := l.work.(*concurrent)
	defer c.spend.figures.Close()
	for len(c.records.flying) < 2 {
		if _, err := l.turn(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.feed(); err != nil {
			t.Fatal(err)
		}
	}
	answer := plugins.Replaced([]byte(`{"id":1}`))
	answer.Figures = map[string]int64{"total_tokens": 7}
	c.landed.put(landing{flight: c.records.flying[1], answer: answer})
	if err := c.abandon(); err != nil {
		t.Fatal(err)
	}
	log := l.lanes[0].log
	if log.Has(0) || !log.Has(1) || c.spend.figures.Get("total_tokens") != 7 {
		t.Errorf("answers are logged: %t, %t; %d tokens", log.Has(0), log.Has(1), c.spend.figures.Get("total_tokens"))
	}
	log.Close()
	_ = l.lanes[0].close(errGivenBack)
}
