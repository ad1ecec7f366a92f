//go:build !linux

package plugins

import (
	"errors"
	"os"
)

// On other systems records and results are sent inline, in the messages.

func newArena() (*arena, *os.File, error) { return nil, nil, errors.ErrUnsupported }

func inheritArena() *arena { return nil }

func pairedArenas(uint64) (host, kernel *arena) { return nil, nil }

func dropPages([]byte) {}
