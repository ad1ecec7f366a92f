// Package disktest gives tests a disk that can be full: a small file system of its
// own, which goes with the test. Where none can be mounted, the test is skipped
// and says what was not tested.
package disktest

import "testing"

// Mount returns a folder on a file system of this size: "64k", "4m".
func Mount(t testing.TB, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := mount(dir, size); err != nil {
		t.Skipf("NOT TESTED: a full disk, since a tiny tmpfs cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unmount(dir); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}
