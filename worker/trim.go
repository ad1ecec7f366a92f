package worker

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// trimTimeout bounds how long a kernel may look for memory to give back.
const trimTimeout = 30 * time.Second

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
	answer := &wire.Trimmed{}
	ctx, cancel := w.stops.untilOverdue(ctx)
	defer cancel()
	if err := w.host.trim(ctx); err != nil {
		answer.Fault = fault.As(fault.Wrap(fault.Batch, err))
	}
	w.send(wire.Message{Trimmed: answer})
}

// trim lets the kernel give cached memory back.
func (h *kernelHost) trim(ctx context.Context) error {
	if h.process == nil || !h.info.CanTrim {
		return fault.New(fault.Incompatible, "kernel %s does not know how to give memory back", h.setup.Kernel)
	}
	ctx, cancel := context.WithTimeout(ctx, trimTimeout)
	defer cancel()
	before, after, err := h.process.Trim(ctx)
	h.log.Info("kernel trimmed", "before", before.Cached, "after", after.Cached, "error", err)
	return err
}
