package fetch

import (
	"errors"
	"net/netip"
	"syscall"
)

// errPrivate means that a host is at an address that is not public.
var errPrivate = errors.New("not a public address")

// reserved are the networks that are not public beyond those that netip knows: shared and
// internal ones, those for documentation and tests, and those whose addresses contain an
// IPv4 address, behind which any other network may be.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),    // shared by carriers; also the metadata service of some clouds
	netip.MustParsePrefix("168.63.129.16/32"), // internal services of a cloud, although it looks public
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),           // IPv4-compatible
	netip.MustParsePrefix("::ffff:0:0:0/96"), // IPv4-translated
	netip.MustParsePrefix("64:ff9b::/96"),    // NAT64
	netip.MustParsePrefix("64:ff9b:1::/48"),  // NAT64 inside a network
	netip.MustParsePrefix("100::/64"),
	netip.MustParsePrefix("2001::/23"), // Teredo and other special ones
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), // 6to4
	netip.MustParsePrefix("3fff::/20"),
	netip.MustParsePrefix("5f00::/16"),
	netip.MustParsePrefix("fec0::/10"),
}

// isPublic reports whether an address is one that anyone may reach.
func isPublic(ip netip.Addr) bool {
	ip = ip.WithZone("").Unmap()
	if !ip.IsGlobalUnicast() || ip.IsPrivate() { // the first excludes loopback, link-local and multicast ones
		return false
	}
	for _, network := range reserved {
		if network.Contains(ip) {
			return false
		}
	}
	return true
}

// guard returns the hook that is called with the address of each connection, after names
// are resolved: a name cannot resolve to one address when it is checked and to another when
// it is used.
func guard(permit func(netip.AddrPort) bool) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || !permit(to) {
			return errPrivate
		}
		return nil
	}
}
