package python

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/resources"
)

// workerVariable identifies the worker that this process belongs to (wire.MarkVariable).
const workerVariable = "GPURUN_WORKER_MARK"

// takeSeat takes one of as many seats as there are cores, for a prepare process. All
// workers of a job share them: each has a share of the cores, but workers that are added
// later change the shares. A seat is a name that only one socket can have; the system
// frees it when its owner exits, however that happens. takeSeat returns false if all seats
// are taken.
func takeSeat() (leave func(), ok bool) {
	job := proc.MarkOwner(os.Getenv(workerVariable))
	if job == "" {
		return func() {}, true
	}
	for i := range resources.Cores() {
		name := fmt.Sprintf("@gpurun-prepare-%s-%d", job, i)
		seat, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		switch {
		case err == nil:
			return func() { seat.Close() }, true
		case !errors.Is(err, syscall.EADDRINUSE): // no such names here
			return func() {}, true
		}
	}
	return nil, false
}
