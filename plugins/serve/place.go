package serve

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// The placeholders of a command.
const (
	portHolder   = "{port}"
	socketHolder = "{socket}"
	gpusHolder   = "{gpus}"
)

// place is where a server listens: at a port, or at a unix socket in a folder of its own.
type place struct {
	url    string
	port   int
	folder string
	socket string
}

// choosePlace finds a place for the server of a command.
func choosePlace(command string) (place, error) {
	if strings.Contains(command, socketHolder) {
		folder, err := os.MkdirTemp(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "serve-") // ends with the worker
		if err != nil {
			return place{}, err
		}
		socket := filepath.Join(folder, "s.sock")
		return place{url: "http://127.0.0.1", folder: folder, socket: socket}, nil
	}
	// Another program may take the port before the server does: see dial.go.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return place{}, err
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	return place{url: fmt.Sprintf("http://127.0.0.1:%d", port), port: port}, nil
}

func (p place) String() string {
	if p.socket != "" {
		return p.socket
	}
	return p.url
}

func (p place) close() {
	if p.folder != "" {
		_ = os.RemoveAll(p.folder)
	}
}
