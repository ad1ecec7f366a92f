package worker

import (
	"testing"

	"github.com/gpurun/gpurun/plugins"
)

// When the drain timeout expires, the answers that have just arrived are kept for the next run.
func TestAbandonKeepsAnswers(t *testing.T) {
	w := newWorker(t, "patient", 16)
	w.setup.Figures = t.TempDir() + "/figures"
	c := newConcurrent(t.Context(), w)
	if err := c.spend.open(w.setup); err != nil {
		t.Fatal(err)
	}
	defer c.spend.figures.Close()
	if err := c.begin(assign(t, `{"id":0,"until":9}`+"\n"+`{"id":1,"until":9}`+"\n")); err != nil {
		t.Fatal(err)
	}
	for len(c.records.flying) < 2 {
		if _, err := c.turn(); err != nil {
			t.Fatal(err)
		}
		if err := c.feed(); err != nil {
			t.Fatal(err)
		}
	}
	answer := plugins.Replaced([]byte(`{"id":1}`))
	answer.Figures = map[string]int64{"total_tokens": 7}
	c.landed <- landing{flight: c.records.flying[1], answer: answer}
	if err := c.abandon(); err != nil {
		t.Fatal(err)
	}
	log := c.lanes[0].log
	if log.Has(0) || !log.Has(1) || c.spend.figures.Get("total_tokens") != 7 {
		t.Errorf("answers are logged: %t, %t; %d tokens", log.Has(0), log.Has(1), c.spend.figures.Get("total_tokens"))
	}
	log.Close()
	_, _ = c.lanes[0].run.close(errGivenBack)
}
