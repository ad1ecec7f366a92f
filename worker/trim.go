package worker

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// trimTimeout bounds how long a kernel may look for memory to give back.
const trimTimeout = 30 * time.Second

// trimmer is a kernel process that can be asked for memory.
type trimmer interface {
	Trim(context.Context) error
}

// askTrim notes that the orchestrator wants memory back; one request stands for
// all that come before it is met.
func (w *Worker) askTrim() {
	select {
	case w.trims <- struct{}{}:
	default:
	}
}

// trim lets the kernel give memory back, and answers. Nothing may be in flight.
func (w *Worker) trim(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, trimTimeout)
	defer cancel()
	answer := &wire.Trimmed{}
	if err := w.host.trim(ctx); err != nil {
		answer.Fault = fault.As(fault.Wrap(fault.Batch, err))
	}
	w.send(wire.Message{Trimmed: answer})
}

func (h *kernelHost) trim(ctx context.Context) error {
	t, ok := any(h.process).(trimmer)
	if !ok || !h.info.CanTrim || h.process == nil {
		return fault.New(fault.Incompatible, "kernel %s does not know how to give memory back", h.setup.Kernel)
	}
	return t.Trim(ctx)
}
