package python

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gpurun/gpurun/internal/fault"
)

// findInterpreter returns the Python that runs the kernel: the one that the user
// named, else that of the active environment, else python3.
func findInterpreter(named string) (string, error) {
	if named != "" {
		path, err := exec.LookPath(named)
		if err != nil && !errors.Is(err, exec.ErrDot) {
			return "", fault.New(fault.Incompatible, "--python %s: %w", named, err)
		}
		return path, nil
	}
	for _, variable := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		folder := os.Getenv(variable)
		if folder == "" {
			continue
		}
		path := filepath.Join(folder, "bin", "python")
		if _, err := os.Stat(path); err != nil {
			return "", fault.New(fault.Incompatible, "the active environment (%s) has no interpreter: %w; activate another, or name one with --python", variable, err)
		}
		return path, nil
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		return "", fault.New(fault.Incompatible, "no python3 is in the PATH %q: install Python %s or newer, or name an interpreter with --python", os.Getenv("PATH"), oldestText)
	}
	return path, nil
}
