// Package resources reads what this process may use of its machine: CPU cores and memory,
// within its affinity and its control groups (versions 1 and 2), how much of them is
// idle, and what a tree of processes uses. On systems without /proc the figures are
// unknown, except for the number of cores.
package resources

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// System is where the figures are read from. The zero value is this machine; tests
// set Root to a folder with copies of the files.
type System struct{ Root string }

// Cores returns the number of CPU cores that this process may use, at least 1. A control
// group's quota of 1.5 cores counts as 2.
func Cores() int { return System{}.Cores() }

func (m System) read(path string) string {
	data, err := os.ReadFile(filepath.Join("/", m.Root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// number reads a file with one number; ok is false if there is none, as with "max".
func (m System) number(path string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(m.read(path), 10, 64)
	return n, err == nil
}

// member reads the number after a name from a file of such lines.
func (m System) member(path, name string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(m.Field(path, name), 10, 64)
	return n, err == nil
}

// Field reads the word after a name from a file of lines that begin with names; "" if there is
// none.
func (m System) Field(path, name string) string {
	for line := range strings.Lines(m.read(path)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			return fields[1]
		}
	}
	return ""
}
