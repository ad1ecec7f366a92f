//go:build !linux && !darwin

package chunk

import "syscall"

// exchange is not to be had: the caller does it in two steps.
func exchange(string, string) error { return syscall.ENOSYS }

// renameNew is not to be had either.
func renameNew(string, string) error { return syscall.ENOSYS }
