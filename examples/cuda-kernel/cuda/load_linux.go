package cuda

import (
	"fmt"
	"reflect"

	"github.com/ebitengine/purego"
)

// library is the driver's library; its version number has never changed.
const library = "libcuda.so.1"

// Load opens the driver's library. It touches no device.
func Load() (*Driver, error) {
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("no NVIDIA driver found: %w", err)
	}
	driver := &Driver{}
	table := reflect.ValueOf(driver).Elem()
	for i := range table.NumField() {
		name := table.Type().Field(i).Tag.Get("cuda")
		// RegisterLibFunc would panic on a missing function.
		address, err := purego.Dlsym(handle, name)
		if err != nil {
			return nil, fmt.Errorf("the NVIDIA driver is too old: %w", err)
		}
		purego.RegisterFunc(table.Field(i).Addr().Interface(), address)
	}
	return driver, nil
}
