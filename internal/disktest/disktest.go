// Package disktest gives tests a disk that can fill up: a small file system that is removed
// with the test. Where none can be mounted, the test is skipped and reports what was not
// tested.
package disktest

import "testing"

// Mount returns a folder on a file system of the given size, such as "64k" or "4m".
func Mount(t testing.TB, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := mount(dir, size); err != nil {
		t.Skipf("NOT TESTED: a full disk, because a small tmpfs cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unmount(dir); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}
