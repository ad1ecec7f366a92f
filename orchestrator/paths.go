package orchestrator

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/internal/fault"
)

// What can be wrong with the paths that a user gave, found before any work.

func checkInput(config Config) error {
	if config.Input == "-" {
		return nil
	}
	info, err := os.Stat(config.Input)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fault.New(fault.Usage, "input %s does not exist", config.Input)
	case err != nil:
		return fault.New(fault.Usage, "input: %w", err)
	case info.IsDir():
		return fault.New(fault.Usage, "input %s is a folder; name a file in it", config.Input)
	}
	return nil
}

// checkOutputFolders finds a mistyped path before the job's folder is made.
func checkOutputFolders(config Config) error {
	if config.WorkDir != "" {
		if info, err := os.Stat(config.WorkDir); err != nil || !info.IsDir() {
			return fault.New(fault.Usage, "the work folder %s does not exist: mkdir -p %s", config.WorkDir, config.WorkDir)
		}
	}
	for _, path := range []string{config.Output, config.Errors} {
		if path == "" || path == "-" {
			continue
		}
		dir := filepath.Dir(path)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fault.New(fault.Usage, "the folder %s for %s does not exist: mkdir -p %s", dir, path, dir)
		}
	}
	return nil
}

func checkOutputs(config Config) error {
	if config.Output == "" {
		return nil // a plan needs none; Run asks for one
	}
	if err := checkOutput(config, "output", config.Output); err != nil || config.Errors == "" {
		return err
	}
	if config.Errors == "-" || samePath(config.Errors, config.Output) {
		return fault.New(fault.Usage, "--errors must be a file other than the output")
	}
	return checkOutput(config, "errors file", config.Errors)
}

func checkOutput(config Config, what, path string) error {
	if path == "-" {
		return nil
	}
	if config.Input != "-" && samePath(path, config.Input) {
		return fault.New(fault.Usage, "the %s %s is the input itself; name another file", what, path)
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fault.New(fault.Usage, "the %s %s is a folder; name a file in it", what, path)
	case err == nil && info.Mode().IsRegular() && !config.Force:
		return fault.New(fault.Usage, "the %s %s exists already; --force replaces it", what, path)
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return fault.New(fault.Usage, "%s: %w", what, err)
	}
	return nil
}

// samePath reports whether two names lead to one file.
func samePath(a, b string) bool {
	if absolute(a) == absolute(b) {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && infoA.Mode().IsRegular() && os.SameFile(infoA, infoB)
}

func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return filepath.Clean(path)
}
