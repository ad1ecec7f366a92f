//go:build !linux

package disktest

import "errors"

func mount(string, string) error { return errors.New("not on this system") }

func unmount(string) error { return nil }
