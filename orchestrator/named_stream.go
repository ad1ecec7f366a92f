package orchestrator

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// stdoutNames are the names of this process's standard output. If it is a file, it is
// written at the position where the shell opened it and never replaced.
var stdoutNames = []string{"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}

// withOutput replaces the names of standard output with -.
func (c Config) withOutput() Config {
	if slices.Contains(stdoutNames, filepath.Clean(c.Output.Path)) {
		c.Output.Path = "-"
	}
	return c
}

// isOwnName reports whether a name may mean something else to another process.
func isOwnName(path string) bool {
	path = absolute(path)
	return strings.HasPrefix(path, "/dev/") && !strings.HasPrefix(path, "/dev/shm/") || strings.HasPrefix(path, "/proc/")
}

// commonName returns the name by which every process finds the file; none if it was
// removed.
func commonName(path string, info os.FileInfo) (string, bool) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", false
	}
	found, err := os.Stat(real)
	return real, err == nil && os.SameFile(found, info) && !isOwnName(real)
}

// lateFile is opened by the first Read: opening a pipe waits for its writer.
type lateFile struct {
	path string
	file *os.File
}

func (l *lateFile) Read(p []byte) (int, error) {
	if l.file == nil {
		file, err := os.Open(l.path)
		if err != nil {
			return 0, err
		}
		l.file = file
	}
	n, err := l.file.Read(p)
	if err != nil {
		l.file.Close()
	}
	return n, err
}
