package kerneltest

import (
	"os"
	"testing"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/process"
)

// Run runs all checks as subtests, twice: on kernels from newKernel directly, and
// through the protocol that a worker uses to call them. It calls newKernel many times
// and opens each kernel at most once.
func Run(t *testing.T, newKernel func() plugins.Kernel, o Options) {
	t.Helper()
	t.Run("direct", func(t *testing.T) { runAll(t, Direct(newKernel), o) })
	t.Run("grpc", func(t *testing.T) { runAll(t, Loopback(newKernel), o) })
}

// RunBinary runs all checks as subtests on a built program, started as a worker would
// start it. If command.Env is nil, the program inherits the test's environment.
func RunBinary(t *testing.T, command process.Command, o Options) {
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
