package fleet

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins/kernel"
)

// The price of one more kernel leaves out imports that it would share, and has what its first batch
// takes longer than others. The report has all of the time, and the first complete start.
func TestPriceOfOneMoreKernel(t *testing.T) {
	var a account
	first := wire.Start{Phase: wire.StartFirstBatch, Importing: 13 * time.Second, Imports: kernel.Imports{Shared: 12 * time.Second}}
	a.starts(first)
	a.ready(time.Now(), 14*time.Second)
	if a.opening != 2*time.Second || a.report.Load != 14*time.Second {
		t.Errorf("one more takes %s, the report has %s", a.opening, a.report.Load)
	}
	first.Phase, first.FirstBatch = wire.StartDone, 4*time.Second
	a.starts(first)
	a.progress(wire.Progress{Batches: 4, Busy: 7 * time.Second})
	if a.oneMore() != 5*time.Second {
		t.Errorf("one more takes %s until it computes like this one", a.oneMore())
	}
	a.starts(wire.Start{Phase: wire.StartImporting})
	a.ready(time.Now(), 5*time.Second)
	if a.opening != 5*time.Second || a.report.Start.Importing != first.Importing {
		t.Errorf("one more takes %s, the start is %+v", a.opening, a.report.Start)
	}
}
