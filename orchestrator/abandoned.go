package orchestrator

import (
	"fmt"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
)

// killAbandoned kills processes left over from jobs whose guards were killed together
// with everything else. No other process cleans those up, and they may hold a device
// that this job is about to use. It returns notes for the user.
func killAbandoned() (notes []string) {
	found, stuck := proc.KillAbandoned(wire.MarkVariable)
	if found > 0 {
		noun := "processes"
		if found == 1 {
			noun = "process"
		}
		notes = append(notes, fmt.Sprintf("killed %d %s left over from an earlier gpurun that was killed", found, noun))
	}
	for _, s := range stuck {
		notes = append(notes, fmt.Sprintf("a process left over from an earlier gpurun cannot be killed: %s; the device it uses may not work", s))
	}
	return notes
}
