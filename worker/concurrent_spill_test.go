package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/histogram"
	"github.com/gpurun/gpurun/internal/wire"
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
	job := assign(t, text)
	records, groups, spilled := 0, 0, false
	list := computeLanes(t, w, func(c *loop) {
		l := c.lanes[0]
		records, groups = max(records, l.held.records), max(groups, len(l.groups))
		spilled = spilled || l.groups.spilled()
	}, job)
	if len(list) != 1 {
		t.Fatalf("%d chunks are done", len(list))
	}
	done := list[0]
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

// computeLanes computes chunks, which are all assigned at once, with a concurrent kernel. It
// returns what is reported, in order. each is called before each turn.
func computeLanes(t *testing.T, w *Worker, each func(*loop), chunks ...wire.Assign) (list []wire.Done) {
	t.Helper()
	w.setup.Figures = t.TempDir() + "/figures"
	c, err := w.beginAll(t.Context(), chunks...)
	if err != nil {
		t.Fatal(err)
	}
	for len(c.lanes) > 0 {
		each(c)
		if _, err := c.turn(); err != nil {
			t.Fatal(err)
		}
		if err := c.endLanes(); err != nil {
			t.Fatal(err)
		}
	}
	c.close()
	_ = w.host.close()
	return w.dones()
}

// A slow record holds up only its own chunk, and a chunk that was cut continues.
func TestSlowRecordAmongLanes(t *testing.T) {
	const n, each = 600, 100
	w := newWorker(t, "patient", 16)
	var chunks []wire.Assign
	for first := 0; first < n; first += each {
		var lines strings.Builder
		for i := first; i < first+each; i++ {
			until := 0
			if i == 50 {
				until = n
			}
			fmt.Fprintf(&lines, "{\"id\":%d,\"until\":%d}\n", i, until)
		}
		a := assign(t, lines.String())
		a.ID, a.New, a.Chunk.First = int64(len(chunks)+1), true, int64(first)
		chunks = append(chunks, a)
	}
	cut := false
	list := computeLanes(t, w, func(c *loop) {
		if first := c.lanes[0]; !cut && first.rest.First > 0 {
			cut = true
			w.stops.request(wire.Stop{Only: &first.out.assign.Chunk.First})
		}
	}, chunks...)
	outputs := make(map[int64]string)
	for i, done := range list {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(chunks[done.Chunk-1].Part), done.Segment.Part+".out"))
		if err != nil {
			t.Fatal(err)
		}
		outputs[done.Chunk] += string(data)
		// The slow record may land together with the last ones of the last chunk.
		if done.Continues != (i == 0) || done.Chunk == 1 && i > 0 && i < len(list)-2 {
			t.Errorf("report %d is about chunk %d: %+v", i, done.Chunk, done)
		}
	}
	if len(list) != n/each+1 {
		t.Errorf("%d reports", len(list))
	}
	for id, a := range chunks {
		var want strings.Builder
		for i := a.Chunk.First; i < a.Chunk.First+each; i++ {
			fmt.Fprintf(&want, "{\"id\":%d,\"calls\":1}\n", i)
		}
		if outputs[int64(id+1)] != want.String() {
			t.Errorf("chunk %d: %.300s", id+1, outputs[int64(id+1)])
		}
	}
}

// While a record is slow, the logs of the others are synced once per checkpoint interval, also
// that of a chunk which has ended.
func TestLogsAreSynced(t *testing.T) {
	const each = 100
	w := newWorker(t, "patient", 16)
	w.setup.Checkpoint = time.Millisecond
	var chunks []wire.Assign
	for i := range 3 {
		var lines strings.Builder
		for k := range each {
			until := 0
			if i == 0 && k == 50 { // it is answered when all chunks are at the kernel
				until = 3 * each
			}
			fmt.Fprintf(&lines, "{\"id\":%d,\"until\":%d}\n", k, until)
		}
		a := assign(t, lines.String())
		a.ID, a.New, a.Chunk.First = int64(i+1), true, int64(i*each)
		chunks = append(chunks, a)
	}
	syncs, begun := 0, false
	crash.Hook = func(point string) {
		if point == "worker-syncs-logs" {
			syncs++
		}
	}
	defer func() { crash.Hook = nil }()
	settled := 0
	list := computeLanes(t, w, func(c *loop) {
		switch { // the second chunk has ended, and the slow record is the only one at the kernel
		case begun || len(c.lanes) > 1 || len(c.work.(*concurrent).records.flying) != 1:
		case c.logs.syncer.Dirty():
			settled = syncs
		case syncs > settled:
			begun = true
			if err := c.begin(chunks[2]); err != nil {
				t.Fatal(err)
			}
		}
	}, chunks[:2]...)
	if len(list) != 3 || list[0].Chunk != 2 {
		t.Errorf("%+v", list)
	}
}
