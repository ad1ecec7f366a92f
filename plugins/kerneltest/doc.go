// Package kerneltest is what every kernel must do, as checks that its author can
// run.
//
// In a test of the kernel's own package, one call runs them all, twice: against
// the kernel as it is, and through the protocol by which a worker calls it.
//
//	func TestKernel(t *testing.T) {
//		kerneltest.Run(t, New, kerneltest.Options{})
//	}
//
// [RunBinary] runs them against a built program, in whatever language it is
// written. The checks themselves do not need package testing: [Checks] lists them
// and a [Session] runs them, for a program that prints what comes of it.
//
// A failed check says what is wrong and what to do. The checks know nothing of
// what a kernel computes: that is for the author's own tests.
package kerneltest
