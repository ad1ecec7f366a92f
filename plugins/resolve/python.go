package resolve

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// PythonOptions are the user's options for Python kernels.
type PythonOptions struct {
	// Interpreter is a path, or a name in $PATH. Empty means the interpreter of the
	// active virtual or conda environment, else python3.
	Interpreter string `json:"interpreter,omitempty"`
	// IOWorkers is the most threads that run a kernel's prepare function, 0 means 4; or
	// the most processes if it defines setup_prepare, 0 means the worker's share of the
	// cores.
	IOWorkers int `json:"io_workers,omitempty"`
	// NaN is how to treat NaN and infinity in values that the kernel does not return as
	// numbers: null (default) or error.
	NaN string `json:"nan,omitempty"`
}

// PythonConfig is the configuration of the built-in kernel python, which hosts every
// kernel that is named by its Python file: embed.py, or embed.py:function.
type PythonConfig struct {
	PythonOptions
	// File is the absolute path of the kernel's file.
	File string `json:"file"`
	// Function is the function or class in the file that computes a batch; empty means
	// process.
	Function string `json:"function,omitempty"`
	// Config is the user's configuration, ctx.config in setup.
	Config json.RawMessage `json:"config,omitempty"`
	// Then are the steps that follow in the same process. If there are any, Name is set.
	Then []PythonStep `json:"then,omitempty"`
	// Name identifies the first step in failures; empty if it is the only one.
	Name string `json:"name,omitempty"`
	// Later: another kernel's process computes the steps before these.
	Later bool `json:"later,omitempty"`
}

// PythonStep is a further Python file of a chain.
type PythonStep struct {
	Name     string          `json:"name"`
	File     string          `json:"file"`
	Function string          `json:"function,omitempty"`
	Config   json.RawMessage `json:"config,omitempty"`
}

// CutPython splits the name of a Python kernel, embed.py or embed.py:function, into the file
// and the function, which is empty if the name has none. ok is false for other kernels.
func CutPython(name string) (file, function string, ok bool) {
	if strings.HasPrefix(name, "exec:") { // exec:python3 score.py
		return "", "", false
	}
	if strings.HasSuffix(name, ".py") {
		return name, "", true
	}
	at := strings.LastIndex(name, ".py:")
	if at < 0 || strings.Contains(name[at:], "/") {
		return "", "", false
	}
	return name[:at+len(".py")], name[at+len(".py:"):], true
}

// resolvePythons resolves the files of one Python process: one file, or several steps.
func (r Resolver) resolvePythons(names []string, configs []json.RawMessage) (Named, error) {
	config := PythonConfig{PythonOptions: r.Python, Later: r.later}
	var files []string
	for i, name := range names {
		path, function, err := r.findPython(name)
		if err != nil {
			return Named{}, err
		}
		files = append(files, path)
		if i == 0 {
			config.File, config.Function, config.Config = path, function, configs[i]
		} else {
			config.Then = append(config.Then, PythonStep{Name: name, File: path, Function: function, Config: configs[i]})
			config.Name = names[0]
		}
	}
	named, err := r.builtin("python", config)
	named.Files, named.Python = files, true
	return named, err
}

// findPython finds a Python file, and the function in it, by the name that the user gave.
func (r Resolver) findPython(name string) (path, function string, err error) {
	file, function, _ := CutPython(name)
	if file != name && function == "" {
		return "", "", fault.KernelFile.New("kernel %s names no function after the colon: write %s, or %s:function", name, file, file)
	}
	path = r.pythonFile(file)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", "", noFile(file, path, err)
	case info.IsDir():
		return "", "", fault.KernelFile.New("kernel %s is a folder; pass a file in it", file)
	}
	return path, function, nil
}

// pythonFile returns the path of a file: relative to the user's working folder or, for a
// name without a folder that does not exist there, the first match in the search path.
func (r Resolver) pythonFile(name string) string {
	path := r.path(name)
	if isFile(path) || strings.Contains(name, "/") {
		return path
	}
	for _, dir := range r.searchDirs() {
		if installed := filepath.Join(dir, name); isFile(installed) {
			return installed
		}
	}
	return path
}
