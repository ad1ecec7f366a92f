package chunk

import (
	"syscall"
	"testing"
)

// tinyDisk is a folder on a file system of 64 KB of its own.
func tinyDisk(t *testing.T) string { return diskOf(t, "64k") }

// diskOf is one of any size.
func diskOf(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("NOT TESTED: a full disk, since a tiny tmpfs cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}
