package serve

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/internal/proc"
)

// listener is a socket that takes connections to a port of 127.0.0.1.
type listener struct {
	inode string
	uid   string
}

// tcpListen is the state of a listening socket in /proc/net/tcp.
const tcpListen = "0A"

// listeners returns the sockets that take connections to the port.
func listeners(port int) (found []listener, err error) {
	// Linux lists listening sockets before all others, of which there may be very many. Other
	// kernels with Linux's interface may not.
	for _, all := range []bool{false, true} {
		for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			some, err := readListeners(name, port, all)
			if err != nil && name == "/proc/net/tcp" { // there may be no IPv6
				return nil, err
			}
			found = append(found, some...)
		}
		if len(found) > 0 {
			break
		}
	}
	return found, nil
}

// readListeners reads a list of sockets, up to the first that does not listen unless all is
// true.
func readListeners(name string, port int, all bool) (found []listener, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) < 10 || fields[3] == "st":
		case fields[3] == tcpListen && takes(fields[1], port):
			found = append(found, listener{inode: fields[9], uid: fields[7]})
		case fields[3] != tcpListen && !all:
			return found, nil
		}
	}
	return found, nil
}

// takes reports whether a socket with this local address takes connections to a port of
// 127.0.0.1. The address has words in the order of this machine.
func takes(local string, port int) bool {
	host, end, _ := strings.Cut(local, ":")
	if number, err := strconv.ParseUint(end, 16, 16); err != nil || int(number) != port {
		return false
	}
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw)%4 != 0 {
		return false
	}
	for word := range slices.Chunk(raw, 4) {
		binary.BigEndian.PutUint32(word, binary.NativeEndian.Uint32(word))
	}
	address, ok := netip.AddrFromSlice(raw)
	address = address.Unmap()
	return ok && (address.IsUnspecified() || address == netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

// holder is a descriptor of a process of the server: /proc/PID/fd/N.
type holder struct {
	pid  int
	path string
}

// holds reports whether a process below this one has the socket open through the descriptor.
func (h holder) holds(inode string) bool {
	link, _ := os.Readlink(h.path)
	return link == "socket:["+inode+"]" && proc.IsDescendant(h.pid, os.Getpid())
}

// findHolder returns a process below this one that has the socket open. Everything that the
// server starts stays below this process, which adopts it.
func findHolder(inode string) (holder, bool) {
	for _, pid := range proc.Descendants(os.Getpid()) {
		paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, path := range paths {
			if h := (holder{pid, path}); h.holds(inode) {
				return h, true
			}
		}
	}
	return holder{}, false
}
