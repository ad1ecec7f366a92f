// Package kernelpb is the generated code of the protocol between a worker and a kernel
// process. To regenerate it from kernel.proto, run `make generate`.
//
// Kernel authors do not need it: package plugins implements the protocol for them.
package kernelpb

//go:generate ./generate.sh
