//go:build !linux

package cuda

import (
	"errors"
	"runtime"
)

// Load always fails: there is no driver for this system.
func Load() (*Driver, error) {
	return nil, errors.New("no NVIDIA driver for " + runtime.GOOS)
}
