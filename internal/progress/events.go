package progress

import (
	"encoding/json"
	"io"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// events writes events as JSON lines: {"event":"chunk_done","time":…, …}.
type events struct{ out io.Writer }

func newEvents(out io.Writer) *events { return &events{out: out} }

func (e *events) write(event orchestrator.Event) {
	head, err := json.Marshal(struct {
		Event string    `json:"event"`
		Time  time.Time `json:"time"`
	}{event.EventName(), time.Now()})
	if err != nil {
		return
	}
	body, err := json.Marshal(event)
	if err != nil {
		return
	}
	// Both are objects: append the members of the second to the first.
	line := head[:len(head)-1]
	if len(body) > len("{}") {
		line = append(append(line, ','), body[1:]...)
	} else {
		line = append(line, '}')
	}
	_, _ = e.out.Write(append(line, '\n'))
}

// EventWriter returns a function that writes events to out as JSON lines, for clients
// that follow a job.
func EventWriter(out io.Writer) func(orchestrator.Event) { return newEvents(out).write }

// WriteError writes the error that ended the program as the last JSON event.
func WriteError(out io.Writer, err error) {
	newEvents(out).write(failed{Kind: fault.KindOf(err), Message: err.Error()})
}

type failed struct {
	Kind    fault.Kind `json:"kind"`
	Message string     `json:"message"`
}

func (failed) EventName() string { return "error" }
