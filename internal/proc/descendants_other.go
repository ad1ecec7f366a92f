//go:build !linux

package proc

// BecomeSubreaper is Linux's; elsewhere process groups must do.
func BecomeSubreaper() error { return nil }

// KillChildren needs a subreaper: it does nothing here.
func KillChildren(...int) {}

// KillMarked needs /proc: it does nothing here.
func KillMarked(string) int { return 0 }

// IsDescendant needs /proc: here nobody is.
func IsDescendant(pid, ancestor int) bool { return false }
