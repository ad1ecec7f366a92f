//go:build !linux

package cuda

import (
	"errors"
	"runtime"
)

// Load says that there is no driver.
func Load() (*Driver, error) {
	return nil, errors.New("no NVIDIA driver for " + runtime.GOOS)
}
