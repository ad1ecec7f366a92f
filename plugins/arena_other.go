//go:build !linux

package plugins

import (
	"errors"
	"os"
)

// Elsewhere records and results travel in the messages themselves.

func newArena() (*arena, *os.File, error) { return nil, nil, errors.ErrUnsupported }

func inheritArena() *arena { return nil }

func pairedArenas(uint64) (host, kernel *arena) { return nil, nil }

func dropPages([]byte) {}
