package progress

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// allEvents has one event of each type.
func allEvents() map[string]orchestrator.Event {
	gone := fault.New(fault.Worker, "line one\nline two").WithDetail("\x1b[31mred\x1b[0m")
	return map[string]orchestrator.Event{
		"planned":        orchestrator.Planned{Plan: orchestrator.Plan{Records: 10, Flight: "batches of 1", Slots: slots("GPU %d", 2)}},
		"worker_started": orchestrator.WorkerStarted{Slot: 1, Device: "GPU 1", PID: 4711},
		"worker_ready":   orchestrator.WorkerReady{Slot: 1, Device: "GPU 1", Took: time.Second},
		"worker_phase":   orchestrator.WorkerPhase{Slot: 1, Device: "GPU 1", Start: orchestrator.Start{Phase: orchestrator.StartLoading, Importing: time.Second}},
		"worker_lost":    orchestrator.WorkerLost{Slot: 1, Device: "GPU 1", Fault: gone, Retired: true, RetryAfter: 30 * time.Second},
		"chunk_started":  orchestrator.ChunkStarted{Slot: 1, Device: "GPU 1", First: 5, Records: 5},
		"progress":       progressed(1, counts(1, 1), counts(2, 2), 10),
		"chunk_done":     orchestrator.ChunkDone{Slot: 1, Device: "GPU 1", First: 5, Counts: chunk.Tally{Counts: counts(4, 1)}, Job: counts(4, 1), Total: 10},
		"chunk_given_up": orchestrator.ChunkGivenUp{First: 5, Records: 5, Failed: 5, Fault: gone},
		"notice":         orchestrator.Notice{Text: "two\nlines"},
		"stopping":       orchestrator.Stopping{Drain: 20 * time.Second},
		"finished":       orchestrator.Finished{Report: orchestrator.Report{In: 10, Pending: 10, Stop: gone, Workers: []orchestrator.WorkerReport{{}}}},
	}
}

// Each event is one line: an object whose first members are event, time and v, the version of
// the schema that docs/compatibility.md promises.
func TestEvents(t *testing.T) {
	for name, event := range allEvents() {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			before := time.Now()
			writeEvent(&out, event)
			line, ok := strings.CutSuffix(out.String(), "\n")
			if !ok || strings.Contains(line, "\n") {
				t.Fatalf("not one line: %q", out.String())
			}
			if !strings.HasPrefix(line, `{"event":"`+name+`","time":"`) {
				t.Errorf("event and time do not come first: %s", line)
			}
			var members map[string]json.RawMessage
			if err := json.Unmarshal([]byte(line), &members); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			var at time.Time
			if err := json.Unmarshal(members["time"], &at); err != nil || at.Before(before.Round(0)) || at.After(time.Now()) {
				t.Errorf("time is %s (%v)", members["time"], err)
			}
			if string(members["v"]) != "1" {
				t.Errorf("v is %s", members["v"])
			}
			for _, name := range []string{"event", "time", "v"} {
				delete(members, name)
			}
			want, err := json.Marshal(event)
			if err != nil {
				t.Fatal(err)
			}
			var rest map[string]json.RawMessage
			if err := json.Unmarshal(want, &rest); err != nil {
				t.Fatal(err)
			}
			if len(rest) != len(members) {
				t.Errorf("%s has other members than %s", line, want)
			}
			for key := range rest {
				if !bytes.Equal(rest[key], members[key]) {
					t.Errorf("%s is %s, want %s", key, members[key], rest[key])
				}
			}
		})
	}
}

// unwritable is an event that cannot be encoded as JSON.
type unwritable struct{ F func() }

func (unwritable) EventName() string { return "unwritable" }

func TestEventsSkipWhatHasNoJSON(t *testing.T) {
	var out bytes.Buffer
	writeEvent(&out, unwritable{})
	if out.Len() != 0 {
		t.Errorf("wrote %q", out.String())
	}
}
