package orchestrator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/worker"
)

// driverVariable holds the Config, as JSON, of a job that this test binary runs
// as a program of its own, for tests that kill or measure it.
const driverVariable = "GPURUN_TEST_DRIVER"

// TestMain is the program: started again, the test binary is a worker, a kernel,
// or a driver.
func TestMain(m *testing.M) {
	// Workers must not sleep at exit for the race detector.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	worker.Init(testKernels())
	if config := os.Getenv(driverVariable); config != "" {
		os.Unsetenv(driverVariable)
		os.Exit(drive(config))
	}
	goleak.VerifyTestMain(m)
}

// drive runs one job as a program would, and prints its report.
func drive(encoded string) int {
	var config orchestrator.Config
	if err := json.Unmarshal([]byte(encoded), &config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config.OnEvent = func(e orchestrator.Event) {
		line, _ := json.Marshal(e)
		fmt.Printf("%s %s\n", e.EventName(), line)
	}
	_, err := orchestrator.Run(ctx, config)
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
