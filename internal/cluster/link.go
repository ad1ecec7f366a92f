package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// link is os.Link; tests replace it.
var link = os.Link

// publish gives a durable file a second, public name, unless that name exists. It reports
// whether the public name now stands for this file.
//
// A network file system may repeat a request whose response was lost, and then report that
// the name exists although the first request created it. Therefore only the files
// themselves tell who was first.
func publish(own, public string) (won bool, err error) {
	linkErr := link(own, public)
	mine, err := os.Stat(own)
	if err != nil {
		return false, storage("publish "+public, err)
	}
	theirs, err := os.Stat(public)
	switch {
	case err == nil && os.SameFile(mine, theirs):
		return true, storage("publish "+public, files.SyncDir(filepath.Dir(public)))
	case err == nil && (linkErr == nil || errors.Is(linkErr, os.ErrExist)):
		return false, nil
	case linkErr != nil && noLinks(linkErr):
		return false, fault.NoHardLinks.New("the file system of %s does not support hard links, which shards need to agree on who computes what: %w", filepath.Dir(public), linkErr)
	case linkErr != nil:
		return false, storage("publish "+public, linkErr)
	}
	return false, storage("publish "+public, err)
}

// noLinks reports whether an error means that the file system has no hard links.
func noLinks(err error) bool {
	causes := []error{syscall.EPERM, syscall.ENOTSUP, syscall.ENOSYS, syscall.EMLINK, syscall.EXDEV}
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

// storage wraps an error of the shared folder; nil stays nil.
func storage(what string, err error) error {
	if err == nil || fault.As(err) != nil {
		return err
	}
	return fault.RunDamaged.Of(fault.Storage, "%s: %w", what, err)
}
