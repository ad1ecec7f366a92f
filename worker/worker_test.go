package worker

import (
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/wire"
)

// TestStopHoldsForChunksAssignedBeforeIt: a stop ends exactly the chunks assigned before
// it, even if an assignment crosses it in transit. A checkpoint ends
// none. A stop of the job covers every chunk.
func TestStopHoldsForChunksAssignedBeforeIt(t *testing.T) {
	seven := int64(7)
	stopChunk, stopJob := wire.Message{Stop: &wire.Stop{}}, wire.Message{Stop: &wire.Stop{Job: true}}
	stopSeven := wire.Message{Stop: &wire.Stop{Only: &seven}}
	assign := func(first int64) wire.Message {
		return wire.Message{Assign: &wire.Assign{Chunk: chunk.Chunk{First: first}}}
	}
	for _, test := range []struct {
		name       string
		messages   []wire.Message
		ends       []bool // each chunk that was assigned
		jobStopped bool
	}{
		{"no stop", []wire.Message{assign(0), assign(9)}, []bool{false, false}, false},
		{"a chunk", []wire.Message{assign(0), stopChunk}, []bool{true}, false},
		{"a chunk and the next", []wire.Message{assign(0), assign(9), stopChunk}, []bool{true, true}, false},
		{"a chunk, then the next", []wire.Message{assign(0), stopChunk, assign(9)}, []bool{true, false}, false},
		{"a checkpoint", []wire.Message{assign(7), assign(9), stopSeven}, []bool{false, false}, false},
		{"the job", []wire.Message{assign(0), stopJob}, []bool{true}, true},
		{"the job, and a chunk in transit", []wire.Message{assign(0), stopJob, assign(9)}, []bool{true, true}, true},
		{"the job, and a chunk's stop", []wire.Message{assign(0), stopJob, stopChunk, stopJob}, []bool{true}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &Worker{pace: newPacer(), stops: newStops(), assigned: make(chan wire.Assign, 2)}
			for _, message := range test.messages {
				w.handle(message)
			}
			for i, want := range test.ends {
				<-w.assigned
				if got := w.stops.mustEnd(&lane{number: int64(i + 1)}); got != want {
					t.Errorf("chunk %d ends: %t", i, got)
				}
			}
			if got := closed(w.stops.jobStopped); got != test.jobStopped {
				t.Errorf("job stopped: %t", got)
			}
		})
	}
}
