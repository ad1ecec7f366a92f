//go:build cgo

package stdfd

// extern int gpurun_closed_descriptors;
import "C"

// Known reports that Closed is reliable.
const Known = true

func closed() int { return int(C.gpurun_closed_descriptors) }
