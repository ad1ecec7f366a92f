package wire

import (
	"os"
	"sync/atomic"
)

// initCalled is set if this program can start itself as a worker.
var initCalled atomic.Bool

// InitCalled is called by worker.Init.
func InitCalled() { initCalled.Store(true) }

// another is set by SetSelf.
var another atomic.Pointer[string]

// SetSelf makes workers run another build of this program, for tests: one without the race
// detector, which takes three times as long, where the worker is not what is tested.
func SetSelf(path string) { another.Store(&path) }

// Self returns the path of this program if it can start itself as a worker, and "" if its
// main does not call worker.Init: started again, it would just run its main.
func Self() string {
	if !initCalled.Load() {
		return ""
	}
	if path := another.Load(); path != nil {
		return *path
	}
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}
