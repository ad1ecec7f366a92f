package process

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/internal/proc"
)

// kernelVariable turns the test binary into one of the kernel programs of
// misbehaving_test.go.
const kernelVariable = "GPURUN_TEST_KERNEL"

func TestMain(m *testing.M) {
	// Kernels must not sleep at exit for the race detector.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	if name := os.Getenv(kernelVariable); name != "" {
		run, ok := programs[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "no test kernel %q\n", name)
			os.Exit(2)
		}
		run()
		os.Exit(0)
	}
	if err := proc.BecomeSubreaper(); err != nil { // as a worker is
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
