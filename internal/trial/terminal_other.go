//go:build !linux

package trial

import "golang.org/x/sys/unix"

const (
	getTerminal = unix.TIOCGETA
	setTerminal = unix.TIOCSETA
)
