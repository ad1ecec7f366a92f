//go:build !linux && !darwin

package commit

import "syscall"

// exchange is not supported here; the caller uses two renames.
func exchange(string, string) error { return syscall.ENOSYS }
