//go:build cgo && linux

package gpu

import (
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
)

// symbols is what is known of the calls that the driver's library has. A call that
// it does not have ends the process when it is made, with "symbol lookup error":
// whatever is not in every driver is looked up first.
//
// The library is opened once more for this, and stays open: go-nvml's own handle
// may be closed by another thread at any time.
var symbols struct {
	mu      sync.Mutex
	library *dl.DynamicLibrary
	known   map[string]bool
}

// has reports whether the driver's library has a call. It is for use after a
// successful Init only.
func has(symbol string) bool {
	symbols.mu.Lock()
	defer symbols.mu.Unlock()
	if found, known := symbols.known[symbol]; known {
		return found
	}
	if symbols.library == nil {
		library := dl.New("libnvidia-ml.so.1", dl.RTLD_LAZY)
		if library.Open() != nil {
			return false
		}
		symbols.library, symbols.known = library, make(map[string]bool)
	}
	found := symbols.library.Lookup(symbol) == nil
	symbols.known[symbol] = found
	return found
}
