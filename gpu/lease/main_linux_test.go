package lease

import (
	"os"
	"syscall"
	"testing"
)

// TestMain makes the test binary a helper program: one that races for GPUs, or one that
// holds a lease until it is killed.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	if os.Getenv(racerVariable) != "" {
		os.Exit(race())
	}
	if os.Getenv(holderVariable) != "" {
		os.Exit(hold())
	}
	os.Exit(m.Run())
}

// deathSignal ends a child with the test.
func deathSignal() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
