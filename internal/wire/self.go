package wire

import (
	"os"
	"sync/atomic"
)

// initCalled is set when this program can be started again as a worker.
var initCalled atomic.Bool

// InitCalled is called by worker.Init.
func InitCalled() { initCalled.Store(true) }

// Self returns the path of this program if it can be its own worker, and "" if
// its main does not call worker.Init: started again, it would do whatever its
// main does.
func Self() string {
	if !initCalled.Load() {
		return ""
	}
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}
