//go:build !amd64

package jsonline

const widePlain = false

func skipPlainWide(*byte, int) int { return 0 }
