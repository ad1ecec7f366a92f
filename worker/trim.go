package worker

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// trimTimeout limits how long a kernel may take to free memory.
const trimTimeout = 30 * time.Second

// trim makes the kernel free memory and sends the response. No batch may be in flight.
func (w *Worker) trim(ctx context.Context) {
	answer := &wire.Trimmed{}
	ctx, cancel := w.stops.untilOverdue(ctx)
	defer cancel()
	if err := w.host.trim(ctx); err != nil {
		answer.Fault = fault.As(fault.KernelException.Wrap(err))
	}
	w.send(wire.Message{Trimmed: answer})
}

// trim makes the kernel free cached memory.
func (h *kernelHost) trim(ctx context.Context) error {
	if h.process == nil || !h.info.CanTrim {
		return fault.KernelContract.Of(fault.Incompatible, "kernel %s cannot free cached memory", h.setup.Kernel)
	}
	ctx, cancel := context.WithTimeout(ctx, trimTimeout)
	defer cancel()
	before, after, err := h.process.Trim(ctx)
	h.log.Info("kernel trimmed", "before", before.Cached, "after", after.Cached, "error", err)
	return err
}
