//go:build !linux

package proc

// Inherited is what a process inherits. There are no templates on this system.
type Inherited struct{}

func InheritedByChildren() *Inherited { return nil }
