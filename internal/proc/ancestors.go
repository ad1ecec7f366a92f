package proc

import "slices"

// IsDescendant reports whether a process is a child of another, or a child's child.
func IsDescendant(pid, ancestor int) bool { return slices.Contains(Ancestors(pid), ancestor) }
