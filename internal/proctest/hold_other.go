//go:build !linux

package proctest

import "errors"

// AllowHold does nothing here.
func AllowHold() {}

// Seize does not work here.
func Seize(int) (func(), error) { return nil, errors.ErrUnsupported }
