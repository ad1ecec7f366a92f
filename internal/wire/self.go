package wire

import (
	"os"
	"sync/atomic"
)

// initCalled is set if this program can start itself as a worker.
var initCalled atomic.Bool

// InitCalled is called by worker.Init.
func InitCalled() { initCalled.Store(true) }

// Self returns the path of this program if it can start itself as a worker, and "" if its
// main does not call worker.Init: started again, it would just run its main.
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
