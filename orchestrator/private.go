package orchestrator

import (
	"errors"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// makePrivate refuses a job folder of another user, and removes access for others.
func makePrivate(path string) error {
	err := files.MakePrivate(path)
	var other *files.NotOwnError
	switch {
	case errors.As(err, &other):
		return fault.JobFolderTaken.New("the job folder %s belongs to %s, not to you; remove it, or name another output", path, other.Owner)
	case err != nil:
		return fault.JobFiles.Of(kindOfDisk(err), "make job folder: %w", err)
	}
	return nil
}
