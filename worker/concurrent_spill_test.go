package worker

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/histogram"
	"github.com/gpurun/gpurun/plugins"
)

// patient is a concurrent kernel. It does not answer a record with "until" before it was
// called for so many.
type patient struct {
	plugins.Base
	calls atomic.Int64
}

const patientInFlight = 16

func (*patient) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{Concurrency: patientInFlight}, nil
}

func (k *patient) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	return plugins.ProcessEach(ctx, k, patientInFlight, batch, results)
}

func (k *patient) Answer(ctx context.Context, record plugins.Record) plugins.Answer {
	var ask struct {
		ID     int
		Until  int64
		Reject bool
	}
	if err := record.Decode(&ask); err != nil {
		return plugins.Rejected("%v", err)
	}
	k.calls.Add(1)
	for k.calls.Load() < ask.Until && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if ask.Reject {
		return plugins.Rejected("no %d", ask.ID)
	}
	return plugins.Replaced(fmt.Appendf(nil, `{"id":%d,"calls":1}`, ask.ID))
}

// TestSlowRecord: one record takes longer than all others together. They are all computed
// meanwhile, in bounded memory, and the output is in order.
func TestSlowRecord(t *testing.T) {
	const n, slow = 12_000, 100
	var lines, want strings.Builder
	for i := range n {
		switch {
		case i == slow:
			fmt.Fprintf(&lines, "{\"id\":%d,\"until\":%d}\n", i, n-1)
		case i%1000 == 1:
			lines.WriteString("not JSON\n")
		case i%1000 == 2:
			fmt.Fprintf(&lines, "{\"id\":%d,\"reject\":true}\n", i)
		default:
			fmt.Fprintf(&lines, "{\"id\":%d}\n", i)
		}
		if i%1000 == 1 || i%1000 == 2 {
			fmt.Fprintf(&want, "failed %d\n", i)
		} else {
			fmt.Fprintf(&want, "{\"id\":%d,\"calls\":1}\n", i)
		}
	}
	// Records that are not JSON never reach the kernel.
	text := strings.Replace(lines.String(), fmt.Sprintf(`"until":%d`, n-1), fmt.Sprintf(`"until":%d`, n-n/1000), 1)
	w := newWorker(t, "patient", 16)
	w.setup.Figures = t.TempDir() + "/figures"
	c := newConcurrent(t.Context(), w)
	if err := c.spend.open(w.setup); err != nil {
		t.Fatal(err)
	}
	defer c.spend.figures.Close()
	job := assign(t, text)
	var err error
	if c.lane, err = c.begin(job); err != nil {
		t.Fatal(err)
	}
	records, groups, spilled := 0, 0, false
	for err == nil && !c.stop() {
		err = c.step()
		records, groups = max(records, c.lane.held.records), max(groups, len(c.lane.groups))
		spilled = spilled || c.lane.rereads()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.close(false); err != nil {
		t.Fatal(err)
	}
	c.lane.endReread()
	done, err := c.lane.run.close(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.end()
	if limit := leastAhead/spillShare + 16*2*patientInFlight; records > limit || groups > limit/16+2*patientInFlight || !spilled {
		t.Errorf("%d records in %d groups in memory; spilled: %t", records, groups, spilled)
	}
	if tally := done.Segment.Tally; tally.Records != n || tally.Failed != 2*n/1000 {
		t.Errorf("%+v", tally)
	}
	data, err := os.ReadFile(job.Part + ".out")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, 0, n)
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "_error") {
			line = fmt.Sprintf("failed %d\n", len(got))
		}
		got = append(got, line)
	}
	if strings.Join(got, "") != want.String() {
		t.Errorf("the output is not what it should be: %.300s", data)
	}
	if (histogram.Histogram{}).Count() == done.Stats.Latency.Count() {
		t.Error("no latency")
	}
}
