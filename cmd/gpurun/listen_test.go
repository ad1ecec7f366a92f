package main

import "testing"

// Each run has a token of its own, also at the same address: who knew the token of an earlier
// run cannot control this one.
func TestEachRunHasItsOwnToken(t *testing.T) {
	f := listenOptions{Address: "127.0.0.1:0"}
	seen := make(map[string]bool)
	for range 3 {
		l, err := f.listen()
		if err != nil {
			t.Fatal(err)
		}
		f.Address = l.Addr().String() // the next run has the same
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if token := l.access.Token; len(token) < 32 || seen[token] {
			t.Errorf("token %q", token)
		}
		seen[l.access.Token] = true
	}
}
