//go:build !linux

package plugins

import "net"

// quiet is conn as it is: only Linux has been looked at.
func quiet(conn net.Conn) net.Conn { return conn }

func watchCalls() {}
