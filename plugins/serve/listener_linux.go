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
func listeners(port int) (found []listener, _ error) {
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		file, err := os.Open(name)
		switch {
		case err != nil && name == "/proc/net/tcp":
			return nil, err
		case err != nil:
			return found, nil // without IPv6
		}
		before := len(found)
		for lines := bufio.NewScanner(file); lines.Scan(); {
			// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 {
				continue
			}
			if fields[3] == tcpListen {
				if takes(fields[1], port) {
					found = append(found, listener{inode: fields[9], uid: fields[7]})
				}
			} else if len(found) > before && fields[3] != "st" {
				break // listening sockets come first, and there may be very many others
			}
		}
		_ = file.Close()
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
