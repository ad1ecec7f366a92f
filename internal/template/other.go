//go:build !linux

package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gpurun/gpurun/internal/proc"
)

// Child is a process that a template has forked. There are none on this system.
type Child struct {
	*proc.Process
	Load   Load
	Itself bool
}

// Spoil does nothing.
func (c *Child) Spoil(string) {}

// Fork returns ErrRefused.
func Fork(context.Context, string, Request, ...*os.File) (*Child, error) {
	return nil, fmt.Errorf("%w: only on Linux", ErrRefused)
}

// Begin returns ErrRefused.
func Begin(string, Request, *os.File) error { return ErrRefused }

// Serve and ServeWarm report that there are no templates here.
func Serve() int     { return 2 }
func ServeWarm() int { return 2 }

// KeepWarm fails.
func KeepWarm(string, ...string) (string, error) { return "", errors.New("only on Linux") }

// WarmGuard and WarmUsage find nothing.
func WarmGuard() int                 { return 0 }
func WarmUsage(string) time.Duration { return 0 }

// ListWarm returns no templates.
func ListWarm(bool) ([]Warm, error) { return nil, nil }
