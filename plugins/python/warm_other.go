//go:build !linux

package python

// processState is what a process inherits. There are no templates on this system.
type processState struct{}

func currentProcess() *processState { return nil }
