package worker

import (
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/wire"
)

// TestStops: a chunk's stop is over with the next chunk, a stop of one chunk with
// another try of that one; a stop of the job is never over, whatever comes behind it.
func TestStops(t *testing.T) {
	seven := int64(7)
	stopChunk, stopJob := wire.Message{Stop: &wire.Stop{}}, wire.Message{Stop: &wire.Stop{Job: true}}
	stopSeven := wire.Message{Stop: &wire.Stop{Only: &seven}}
	assign := func(first int64) wire.Message {
		return wire.Message{Assign: &wire.Assign{Chunk: chunk.Chunk{First: first}}}
	}
	for _, test := range []struct {
		name             string
		messages         []wire.Message
		stop, halt, only bool
	}{
		{"a chunk", []wire.Message{stopChunk}, true, false, false},
		{"a chunk, and the next", []wire.Message{stopChunk, assign(0)}, false, false, false},
		{"one chunk", []wire.Message{stopSeven}, false, false, true},
		{"one chunk, and another", []wire.Message{stopSeven, assign(9)}, false, false, true},
		{"one chunk, again", []wire.Message{stopSeven, assign(7)}, false, false, false},
		{"the job", []wire.Message{stopJob}, true, true, false},
		{"the job, and a chunk that was on its way", []wire.Message{stopJob, assign(0)}, false, true, false},
		{"the job, and a chunk's stop", []wire.Message{stopJob, stopChunk}, true, true, false},
		{"a chunk's stop, and the job", []wire.Message{stopChunk, stopJob}, true, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &Worker{pace: newPacer(), assigned: make(chan wire.Assign, 1)}
			for _, message := range test.messages {
				w.take(message)
			}
			if stop, halt, only := w.stop.Load(), w.halt.Load(), w.stopOnly.Load() != 0; stop != test.stop || halt != test.halt || only != test.only {
				t.Errorf("stop %v, halt %v, one chunk %v", stop, halt, only)
			}
		})
	}
}
