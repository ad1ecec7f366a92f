package lease

import (
	"os"
	"syscall"
	"testing"
)

// TestMain is the program: started again, the test binary is one of those who race
// for GPUs, or one who holds a lease until it is killed.
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
