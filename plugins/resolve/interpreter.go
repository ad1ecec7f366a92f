package resolve

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gpurun/gpurun/internal/fault"
)

// OldestPython is the oldest version that Python kernels work with.
const OldestPython = "3.9"

// FindInterpreter returns the path of the Python that runs a kernel: the one that the user
// chose, else the interpreter of the active environment, else python3.
func (o PythonOptions) FindInterpreter() (string, error) {
	named := o.Interpreter
	if named != "" {
		path, err := exec.LookPath(named)
		if err != nil && !errors.Is(err, exec.ErrDot) {
			return "", fault.NoPython.New("Python interpreter %s: %w", named, err).Set("python")
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
			return "", fault.NoPython.New("the active environment (%s) has no interpreter: %w; activate another, or name an interpreter", variable, err).Set("python")
		}
		return path, nil
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		return "", fault.NoPython.New("no python3 is in the PATH %q: install Python %s or newer, or name an interpreter", os.Getenv("PATH"), OldestPython).Set("python")
	}
	return path, nil
}
