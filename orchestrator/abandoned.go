package orchestrator

import (
	"fmt"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
)

// killAbandoned kills what jobs left whose processes were all killed in the same
// instant, guards included: nobody else is left to do it, and it may hold a device that
// this job is about to use. It returns notes for the user.
func killAbandoned() (notes []string) {
	found, stuck := proc.KillAbandoned(wire.MarkVariable)
	if found > 0 {
		noun := "processes"
		if found == 1 {
			noun = "process"
		}
		notes = append(notes, fmt.Sprintf("killed %d %s that an earlier gpurun left when it was killed", found, noun))
	}
	for _, s := range stuck {
		notes = append(notes, fmt.Sprintf("an earlier gpurun left a process that cannot be killed: %s; the device that it uses may not work", s))
	}
	return notes
}
