package proc

import "slices"

// IsDescendant reports whether a process descends from another.
func IsDescendant(pid, ancestor int) bool { return slices.Contains(Ancestors(pid), ancestor) }
