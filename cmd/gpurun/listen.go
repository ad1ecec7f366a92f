package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/internal/httpserve"
	"github.com/gpurun/gpurun/internal/server"
)

// listenFlags say where and to whom a page, an API and metrics are served.
type listenFlags struct {
	address   string
	tokenFile string
	cert, key string
	insecure  bool
	hosts     []string
}

func (f *listenFlags) register(flags *pflag.FlagSet, address, usage string) {
	flags.StringVar(&f.address, "listen", address, usage)
	flags.StringVar(&f.tokenFile, "listen-token", "", "`FILE` with the token, created if missing, which every request must then carry; required unless --listen is a loopback address, where only changes need a token by default")
	flags.StringVar(&f.cert, "tls-cert", "", "serve HTTPS with this certificate `FILE` (PEM)")
	flags.StringVar(&f.key, "tls-key", "", "private key `FILE` of --tls-cert")
	flags.BoolVar(&f.insecure, "insecure", false, "allow --listen on other than loopback addresses without TLS: the token and all data can be read on the network")
	flags.StringSliceVar(&f.hosts, "allow-host", nil, "also answer requests that address the server by this host `NAME`")
}

// listener is an open server socket.
type listener struct {
	net.Listener
	access server.Access
	scheme string
}

// listen opens the socket, and refuses what would be unsafe. Unless the user named a file for
// the token, it is a new one.
func (f *listenFlags) listen() (*listener, error) {
	host, _, err := net.SplitHostPort(f.address)
	if err != nil {
		return nil, usagef("--listen %q: use an address and a port, such as 127.0.0.1:9401", f.address)
	}
	loopback := host == "localhost" || net.ParseIP(host).IsLoopback()
	switch {
	case (f.cert == "") != (f.key == ""):
		return nil, usagef("--tls-cert and --tls-key belong together")
	case !loopback && f.tokenFile == "":
		return nil, usagef("--listen %s can be reached from other machines: name a file for the token with --listen-token, or listen on 127.0.0.1", f.address)
	case !loopback && f.cert == "" && !f.insecure:
		return nil, usagef("--listen %s can be reached from other machines: add --tls-cert and --tls-key, or --insecure", f.address)
	}
	l := &listener{scheme: "http", access: server.Access{Token: server.NewToken(), ReadToken: !loopback || f.tokenFile != "", Hosts: f.hosts}}
	if host != "" {
		l.access.Hosts = append(l.access.Hosts, host)
	}
	var certificate tls.Certificate
	if f.cert != "" {
		if certificate, err = tls.LoadX509KeyPair(f.cert, f.key); err != nil {
			return nil, usagef("--tls-cert: %w", err)
		}
		l.scheme = "https"
	}
	if l.Listener, err = net.Listen("tcp", f.address); err != nil {
		return nil, usagef("--listen: %w", err)
	}
	if f.tokenFile != "" {
		if l.access.Token, err = server.ReadToken(f.tokenFile); err != nil {
			_ = l.Close()
			return nil, err
		}
	}
	if f.cert != "" {
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
