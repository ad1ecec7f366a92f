package proc

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// TakeSeat takes one of a number of seats that all processes share which use the same name. A seat
// is a name that only one socket can have; the system frees it when its owner exits, however that
// happens. TakeSeat returns false if all seats are taken.
func TakeSeat(name string, seats int) (leave func(), ok bool) {
	for i := range seats {
		seat, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: fmt.Sprintf("@%s-%d", name, i), Net: "unixgram"})
		switch {
		case err == nil:
			return func() { seat.Close() }, true
		case !errors.Is(err, syscall.EADDRINUSE): // no such names here
			return func() {}, true
		}
	}
	return nil, false
}
