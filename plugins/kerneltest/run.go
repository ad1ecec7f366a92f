package kerneltest

import (
	"os"
	"testing"

	"github.com/gpurun/gpurun/plugins"
)

// Run runs all checks as subtests, twice: against newKernel's kernels directly,
// and through the protocol by which a worker calls them. newKernel is called
// often, and each kernel is opened at most once.
func Run(t *testing.T, newKernel func() plugins.Kernel, o Options) {
	t.Helper()
	t.Run("direct", func(t *testing.T) { runAll(t, Direct(newKernel), o) })
	t.Run("grpc", func(t *testing.T) { runAll(t, Loopback(newKernel), o) })
}

// RunBinary runs all checks as subtests against a built program, each process as
// a worker would start it. Without an environment the program gets the test's.
func RunBinary(t *testing.T, command plugins.Command, o Options) {
	t.Helper()
	if command.Env == nil {
		command.Env = os.Environ()
	}
	runAll(t, Binary(command), o)
}

func runAll(t *testing.T, start Starter, o Options) {
	session := NewSession(start, o)
	defer session.Close()
	for _, check := range Checks() {
		t.Run(check.Name, func(t *testing.T) {
			switch outcome := session.Run(t.Context(), check); {
			case outcome.Err != nil:
				t.Errorf("%s\n%s", check.About, outcome.Err)
			case outcome.Skipped != "":
				t.Skip(outcome.Skipped)
			}
		})
	}
}
