//go:build cgo && linux

package gpu

import (
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
)

// symbols caches which calls the driver's library has. A missing call would end the
// process with "symbol lookup error", so calls that not every driver has are looked up
// first.
//
// The library is opened a second time for this and stays open: another thread may close
// go-nvml's own handle at any time.
var symbols struct {
	mu      sync.Mutex
	library *dl.DynamicLibrary
	known   map[string]bool
}

// has reports whether the driver's library has a call. It must only be called after a
// successful Init.
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
