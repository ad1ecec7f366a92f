// Package shell runs command lines that users write through /bin/sh, and finds mistakes in
// them before they run.
package shell

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
)

// Path is the shell.
const Path = "/bin/sh"

// Args returns the arguments with which the shell runs a command. A single program replaces
// the shell, so that signals reach it directly and its exit status is the one reported.
func Args(command string) []string {
	if word := FirstWord(command); word != "" && !strings.ContainsAny(command, "|&;<>()\n") {
		if _, err := exec.LookPath(word); err == nil { // not a shell builtin
			command = "exec " + command
		}
	}
	return []string{"-c", command}
}

// Exit returns how a command exited. The shell reports the signal that killed the last
// program of its script in its exit status.
func Exit(e proc.Exit) proc.Exit {
	const byShell, last = 128, 64
	if e.Code > byShell && e.Code <= byShell+last {
		e.Code, e.Signal = -1, syscall.Signal(e.Code-byShell)
	}
	return e
}

// FirstWord returns the program's name if that can be told without a shell.
func FirstWord(command string) string {
	fields := strings.Fields(command)
	if len(fields) == 0 || strings.ContainsAny(fields[0], "$`'\"\\(){}=~*?[;|&<>!") {
		return ""
	}
	return fields[0]
}

// Environment returns the environment for a program that a kernel starts. It hides the
// variables of go-plugin: a gpurun kernel run by mistake would answer with a handshake. Only the
// kernel itself may ask for templates.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "GPURUN_KERNEL=") || strings.HasPrefix(entry, "GPURUN_KERNEL_TEMPLATES=") || strings.HasPrefix(entry, "PLUGIN_")
	})
}

// Check reports simple mistakes up front, before the shell reports them each time it runs
// the command. scheme is how the user names such commands: exec for exec:COMMAND.
func Check(scheme, command string) error {
	output, ok, err := run("-n", "-c", command)
	if err != nil {
		return fault.NoShell.New("%s: the shell %s does not run: %w", scheme, Path, err)
	}
	if !ok {
		line, _, _ := strings.Cut(strings.TrimSpace(output), "\n")
		return fault.NoProgram.New("%s: the shell cannot parse %q: %s", scheme, command, line)
	}
	word := FirstWord(command)
	if word == "" {
		return nil // variables, a group or a pipeline: only the shell can tell
	}
	if strings.Contains(word, "/") {
		return checkFile(scheme, word)
	}
	_, ok, err = run("-c", `command -v -- "$1" >/dev/null`, "sh", word)
	if err != nil {
		return fault.NoShell.New("%s: the shell %s does not run: %w", scheme, Path, err)
	}
	if !ok {
		if _, statErr := os.Stat(word); statErr == nil {
			return fault.NoProgram.New("%s: program %s not found; to run the file in the current directory, write %s:./%s", scheme, word, scheme, command)
		}
		return fault.NoProgram.New("%s: program %s not found", scheme, word)
	}
	return nil
}

// run runs the shell, and reports whether it exited with status 0.
func run(args ...string) (output string, ok bool, err error) {
	output, exit, err := proc.Output(proc.Command{Path: Path, Args: args})
	if err == nil && exit.Code < 0 {
		err = errors.New(exit.String())
	}
	return output, exit.Code == 0, err
}

// checkFile checks a program given by its path: some shells accept a file that they
// cannot execute.
func checkFile(scheme, path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fault.NoProgram.New("%s: program %s not found", scheme, path)
	case err != nil:
		return fault.NoProgram.New("%s: %w", scheme, err)
	case info.IsDir():
		return fault.NoProgram.New("%s: %s is a folder", scheme, path)
	case info.Mode()&0o111 == 0:
		return fault.NoProgram.New("%s: %s is not executable: chmod +x %s", scheme, path, path)
	}
	return nil
}
