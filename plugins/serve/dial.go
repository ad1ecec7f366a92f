package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"
)

// Any user of the machine can listen at a port that is free. A program that takes the port
// before the server does, or after the server has lost it, would get the records and write the
// results. So each connection is checked before anything is sent: the socket that listens at
// the port belongs to a process of the server, before and after connecting.

// dial connects to the server.
func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var dialer net.Dialer
	if s.place.socket != "" { // in a folder that only this user can enter
		return dialer.DialContext(ctx, "unix", s.place.socket)
	}
	before, err := s.listeners()
	if err != nil {
		return nil, err
	}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.place.port)))
	if err != nil {
		return nil, err
	}
	after, err := s.listeners()
	if err == nil && !slices.ContainsFunc(after, func(l listener) bool { return slices.Contains(before, l) }) {
		err = errNew
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

var (
	errForeign = errors.New("another program has the port")
	errNew     = errors.New("the server has only just begun to listen")
)

// exitTime is how long the socket of a process that exits may outlive its descriptors.
const exitTime = 20 * time.Millisecond

// listeners returns the sockets that listen at the server's port. If one of them is not the
// server's, the server has lost its port: it is ended.
func (s *server) listeners() ([]listener, error) {
	all, foreign, err := s.sort()
	if foreign != nil {
		time.Sleep(exitTime)
		all, foreign, err = s.sort()
	}
	if foreign == nil {
		return all, err
	}
	s.foreign.Store(foreign)
	s.kill(fmt.Sprintf("lost port %d to a process of user %s that gpurun did not start", s.place.port, foreign.uid))
	return nil, errForeign
}

// sort returns the sockets that listen at the port, and one that is not the server's.
func (s *server) sort() (all []listener, foreign *listener, err error) {
	all, err = listeners(s.place.port)
	for i, l := range all {
		if !s.owns(l) {
			foreign = &all[i]
		}
	}
	return all, foreign, err
}

// owns reports whether a process of the server has the socket.
func (s *server) owns(l listener) bool {
	if known, ok := s.holders.Load(l.inode); ok && known.(holder).holds(l.inode) {
		return true
	}
	found, ok := findHolder(l.inode)
	if ok {
		s.holders.Store(l.inode, found)
	}
	return ok
}
