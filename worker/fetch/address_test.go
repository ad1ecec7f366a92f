package fetch

import (
	"net/netip"
	"testing"
)

func TestAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "151.101.1.140": true, "2606:4700::1111": true, "2a00:1450:4001::1": true,
		"::ffff:8.8.8.8": true,

		"127.0.0.1": false, "127.255.0.1": false, "::1": false, "0.0.0.0": false, "::": false, "0.1.2.3": false,
		"10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "fd00::1": false, "fc00::1": false,
		"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "fd00:ec2::254": false,
		"100.64.0.1": false, "100.100.100.200": false, "192.0.0.192": false, "168.63.129.16": false,
		"224.0.0.1": false, "239.255.255.250": false, "ff02::1": false, "255.255.255.255": false, "240.0.0.1": false,
		"192.0.2.1": false, "198.18.0.1": false, "198.51.100.1": false, "203.0.113.1": false, "2001:db8::1": false,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::ffff:169.254.169.254": false, "::127.0.0.1": false,
		"64:ff9b::7f00:1": false, "64:ff9b::808:808": false, "64:ff9b:1::a00:1": false,
		"::ffff:0:127.0.0.1": false, "::ffff:0:169.254.169.254": false, "::ffff:0:8.8.8.8": false,
		"2002:7f00:1::": false, "2001::1": false, "fec0::1": false,
	} {
		if got := isPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is public: %t", text, got)
		}
	}
}
