//go:build cgo

package stdfd

// extern int gpurun_closed_descriptors;
import "C"

// Known: Closed tells.
const Known = true

func closed() int { return int(C.gpurun_closed_descriptors) }
