package proctest

import (
	"os"
	"path/filepath"
)

// Program returns the path of this test binary, for tests that start it again: of its build without
// the race detector, if scripts/test.sh has made one. Processes then take a third of the time.
func Program() string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	if folder := os.Getenv("GPURUN_TEST_WORKERS"); folder != "" {
		plain := filepath.Join(folder, filepath.Base(self))
		if _, err := os.Stat(plain); err == nil {
			return plain
		}
	}
	return self
}
