package proc

import (
	"os/signal"
	"syscall"
)

// IgnoreStopSignals makes this process, and what it starts, ignore SIGINT,
// SIGTERM and SIGHUP. Schedulers and terminals send them to every process of a
// job; only the orchestrator acts on them, and tells the others in its own way.
func IgnoreStopSignals() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}

// CloseOnExec marks descriptors that this process inherited, so that what it
// starts does not hold them open.
func CloseOnExec(fds ...int) {
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
}

// heapFloor is memory that nobody touches, so that it is none, but that the garbage
// collector counts.
var heapFloor []byte

// CollectLessOften lets garbage grow to 32 MB before it is collected. A process that
// moves batches has little else on its heap: the collector would run at every 4 MB,
// and take more time than the work.
func CollectLessOften() {
	if heapFloor == nil {
		heapFloor = make([]byte, 32<<20)
	}
}
