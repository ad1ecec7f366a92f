package builtin_test

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/plugins/builtin"
)

// Each name returns a new kernel and is valid after -k.
func TestKernels(t *testing.T) {
	for _, name := range []string{"echo", "exec", "minhash", "python"} {
		if builtin.Kernels()[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
	for name, newKernel := range builtin.Kernels() {
		if strings.ContainsAny(name, ":/. ") || name != strings.ToLower(name) {
			t.Errorf("%q cannot be named", name)
		}
		if newKernel() == nil {
			t.Errorf("%s is nothing", name)
		}
	}
}
