//go:build !linux

package shmem

import (
	"errors"
	"os"
)

// Create is not supported here.
func Create(string, int) (*os.File, error) { return nil, errors.ErrUnsupported }

// Size reports that there is no such memory here.
func Size(int) int { return 0 }

// Map is not supported here.
func Map(int, int, int, bool) ([]byte, error) { return nil, errors.ErrUnsupported }

// Unmap does nothing.
func Unmap([]byte) {}

// Drop does nothing.
func Drop([]byte, int, int) {}
