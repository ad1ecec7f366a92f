//go:build !cgo || !linux

package main

// checksAddressSpace reports whether gpurun explains an address space that is too small.
const checksAddressSpace = false
