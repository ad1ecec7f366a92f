package progress

import (
	"io"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// writeEvent writes an event as a JSON line: {"event":"chunk_done","time":…,"v":1, …}.
func writeEvent(out io.Writer, event orchestrator.Event) {
	if line := view.EncodeEvent(event, time.Now()); line != nil {
		_, _ = out.Write(append(line, '\n'))
	}
}

// WriteError writes the fault that ended the program as the last JSON event.
func WriteError(out io.Writer, err error) {
	e := fault.As(err)
	writeEvent(out, failed{Kind: e.Kind, Code: e.Code, Message: err.Error()})
}

type failed struct {
	Kind    fault.Kind `json:"kind"`
	Message string     `json:"message"`
	Code    fault.Code `json:"code"`
}

func (failed) EventName() string { return "error" }
