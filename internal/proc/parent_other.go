//go:build !linux

package proc

import "os"

// StopWithParent does nothing on this system.
func StopWithParent() { _ = os.Unsetenv(ParentVariable) }
