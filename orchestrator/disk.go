package orchestrator

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/chunk/commit"
)

// diskShare: one in diskShare records must be done before the size of the output can be
// estimated.
const diskShare = 100

// diskWarning warns the user, once and early, that the output will not fit on the disk:
// better now than after nine hours.
type diskWarning struct {
	path  string // on the disk
	first int64  // record of the output
	emit  func(Event)
	done  bool
}

// warn looks at the output of a job with this many records so far.
func (d *diskWarning) warn(output *commit.Output, total int64) {
	tally, next := output.Appended()
	if d.done || total <= 0 || tally.Records == 0 || tally.Records < total/diskShare {
		return
	}
	d.done = true
	var stat unix.Statfs_t
	if err := unix.Statfs(d.path, &stat); err != nil {
		return
	}
	free := float64(stat.Bavail) * float64(stat.Bsize)
	needed := float64(output.Size()) / float64(tally.Records) * float64(d.first+total-next)
	if needed > free {
		d.emit(Notice{Text: fmt.Sprintf(
			"not enough disk space: about %s of output remains and %s is free in %s; free some space, or the job stops when the disk is full (the same command resumes it)",
			sizeText(needed), sizeText(free), d.path)})
	}
}

func sizeText(bytes float64) string {
	for _, unit := range []struct {
		name string
		size float64
	}{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}} {
		if bytes >= unit.size {
			return fmt.Sprintf("%.1f %s", bytes/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.0f KB", bytes/1e3)
}
