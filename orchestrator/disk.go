package orchestrator

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// diskShare: one in diskShare records must be done before the size of the output can be
// estimated.
const diskShare = 100

// warnOfDisk warns the user, once and early, that the output will not fit on the disk:
// better now than after nine hours.
func (c *committer) warnOfDisk() {
	total := c.ledger.total()
	tally, next := c.output.Appended()
	if c.diskChecked || !resumable(c.config) || total <= 0 || tally.Records == 0 || tally.Records < total/diskShare {
		return
	}
	c.diskChecked = true
	var stat unix.Statfs_t
	if err := unix.Statfs(c.folder.path, &stat); err != nil {
		return
	}
	free := float64(stat.Bavail) * float64(stat.Bsize)
	left := float64(c.config.Input.Offset + total - next)
	needed := float64(c.output.Size()) / float64(tally.Records) * left
	if needed > free {
		c.emit(Notice{Text: fmt.Sprintf(
			"not enough disk space: about %s of output remains and %s is free in %s; free some space, or the job stops when the disk is full (the same command resumes it)",
			sizeText(needed), sizeText(free), c.folder.path)})
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
