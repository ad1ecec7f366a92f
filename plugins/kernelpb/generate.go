// Package kernelpb is the generated protocol between a worker and a kernel
// process. kernel.proto is its source; `make generate` makes the rest.
//
// Kernel authors do not need it: package plugins speaks it for them.
package kernelpb

//go:generate ./generate.sh
