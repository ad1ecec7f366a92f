package jsonline

import "golang.org/x/sys/cpu"

// widePlain: skipPlainWide is there. It looks at 64 bytes at a time, which takes less
// than half the time of eight where strings are long.
var widePlain = cpu.X86.HasAVX2

// skipPlainWide returns how many of the n bytes from p on come before the first one
// that is special, of as many as are a multiple of 32.
//
//go:noescape
func skipPlainWide(p *byte, n int) int
