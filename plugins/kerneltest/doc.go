// Package kerneltest is a conformance suite for kernels: checks that every kernel
// must pass and that its author can run.
//
// In a test of the kernel's package, one call runs every check twice: on the kernel
// directly, and through the protocol that a worker uses to call it.
//
//	func TestKernel(t *testing.T) {
//		kerneltest.Run(t, New, kerneltest.Options{})
//	}
//
// [RunBinary] runs the checks on a built program, in any language. The checks do not
// depend on package testing: a program that wants to print the outcomes itself gets the
// list from [Checks] and runs them in a [Session].
//
// A failed check reports what is wrong and how to fix it. The checks do not know what a
// kernel is meant to compute: test that separately.
package kerneltest
