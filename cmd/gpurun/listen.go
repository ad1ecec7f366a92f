package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/httpserve"
	"github.com/gpurun/gpurun/internal/server"
)

// listenOptions say where and to whom a page, an API and metrics are served.
type listenOptions struct {
	Address   string
	Token     string // the file with it
	Cert, Key string
	Insecure  bool
	Hosts     []string
}

// listener is an open server socket.
type listener struct {
	net.Listener
	access server.Access
	scheme string
}

// listen opens the socket, and refuses what would be unsafe. Unless the user named a file for
// the token, it is a new one.
func (o listenOptions) listen() (*listener, error) {
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, fault.BadAddress.New("--listen %q: use an address and a port, such as 127.0.0.1:9401", o.Address)
	}
	loopback := host == "localhost" || net.ParseIP(host).IsLoopback()
	switch {
	case (o.Cert == "") != (o.Key == ""):
		return nil, fault.FlagsClash.New("--tls-cert and --tls-key belong together")
	case !loopback && o.Token == "":
		return nil, fault.BadAddress.New("--listen %s can be reached from other machines: name a file for the token with --listen-token, or listen on 127.0.0.1", o.Address)
	case !loopback && o.Cert == "" && !o.Insecure:
		return nil, fault.BadAddress.New("--listen %s can be reached from other machines: add --tls-cert and --tls-key, or --insecure", o.Address)
	}
	l := &listener{scheme: "http", access: server.Access{Token: server.NewToken(), ReadToken: !loopback || o.Token != "", Hosts: o.Hosts}}
	if host != "" {
		l.access.Hosts = append(l.access.Hosts, host)
	}
	var certificate tls.Certificate
	if o.Cert != "" {
		if certificate, err = tls.LoadX509KeyPair(o.Cert, o.Key); err != nil {
			return nil, fault.SideFile.New("--tls-cert: %w", err)
		}
		l.scheme = "https"
	}
	if l.Listener, err = net.Listen("tcp", o.Address); err != nil {
		return nil, fault.BadAddress.New("--listen: %w", err)
	}
	if o.Token != "" {
		if l.access.Token, err = server.ReadToken(o.Token); err != nil {
			_ = l.Close()
			return nil, err
		}
	}
	if o.Cert != "" {
		l.Listener = tls.NewListener(l.Listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	}
	return l, nil
}

// url is the address of the page with its token, which browsers do not send to servers.
func (l *listener) url() string {
	return fmt.Sprintf("%s://%s/#%s", l.scheme, reachable(l.Addr()), l.access.Token)
}

// serve serves until end is called.
func (l *listener) serve(h http.Handler) (end func()) {
	return httpserve.Serve(l.Listener, server.MaxConnections, h)
}

// reachable returns an address that a browser can open: this host's name instead of the
// unspecified address.
func reachable(address net.Addr) string {
	tcp, ok := address.(*net.TCPAddr)
	name, err := os.Hostname()
	if !ok || !tcp.IP.IsUnspecified() || err != nil {
		return address.String()
	}
	return net.JoinHostPort(name, strconv.Itoa(tcp.Port))
}
