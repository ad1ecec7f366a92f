// Package resolve turns the name of a kernel, as a user writes it, into the program to start and the
// configuration to open it with.
package resolve

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/nearest"
	"github.com/gpurun/gpurun/plugins"
)

// Resolver turns the name of a kernel, as a user writes it, into a program.
type Resolver struct {
	// Builtins are the names of the built-in kernels.
	Builtins []string
	// Self and SelfArgs start a built-in: the path and the arguments before its name.
	Self     string
	SelfArgs []string
	// SearchPath is $GPURUN_PLUGIN_PATH: a list of folders, as in $PATH.
	SearchPath string
	// Dir is the user's working folder; relative paths start there.
	Dir string
	// Python applies to kernels that are Python files.
	Python PythonOptions
	// Exec applies to kernels whose name begins with exec:.
	Exec ExecOptions
	// KnownServer: see OpenAIConfig.Known.
	KnownServer bool

	later bool // the kernel is a step after the first
}

// Named is a resolved kernel.
type Named struct {
	Path   string
	Args   []string
	Config plugins.Config
	// Files are the kernel's files, on which its results depend. A built-in has none.
	Files []string
	// Data lists the Files that are not code: a program may write to them while it runs.
	Data []string
	// Reread lists the Files that may be read at any time, not only when the kernel
	// process starts.
	Reread []string
	// Python means that the kernel, or one of its steps, is a Python file.
	Python bool
	// Within names the built-in that may run in the worker's own process; see process.Within.
	Within string
}

// ExecConfig is the configuration of the built-in kernel exec, which runs exec:COMMAND.
type ExecConfig struct {
	// Command is run by the shell.
	Command string `json:"command"`
	// Mode is stream (default), batch or per-record.
	Mode string `json:"mode,omitempty"`
	// ID is a member of each record that the program repeats in its answer; empty for
	// none.
	ID string `json:"id,omitempty"`
	// MaxLine limits the program's lines in bytes; 0 means no limit.
	MaxLine int64 `json:"max_line,omitempty"`
	// Config is the user's configuration; the program finds it in $GPURUN_KERNEL_CONFIG.
	Config json.RawMessage `json:"config,omitempty"`
}

// ExecOptions are the user's options for exec: kernels; see ExecConfig.
type ExecOptions struct {
	Mode    string
	ID      string
	MaxLine int64
}

// OpenAIConfig is the configuration of the built-in kernel openai, which runs openai:URL.
type OpenAIConfig struct {
	// URL is the base URL of the server: http://127.0.0.1:8000/v1.
	URL string `json:"url"`
	// Config is the user's configuration; see package openai.
	Config json.RawMessage `json:"config,omitempty"`
	// Known: the job has sent requests to the server before. If it cannot be reached, the
	// kernel waits for it from the start.
	Known bool `json:"known,omitempty"`
}

// ServeConfig is the configuration of the built-in kernel serve, which runs serve:COMMAND.
type ServeConfig struct {
	// Command is run by the shell.
	Command string `json:"command"`
	// Config is the user's configuration; see package serve.
	Config json.RawMessage `json:"config,omitempty"`
}

// Resolve finds the kernel called name:
//
//	exec:COMMAND          any program, one line in and one line out
//	openai:URL            a server with OpenAI's API
//	serve:COMMAND         a server with OpenAI's API that gpurun starts for each worker
//	embed.py, dir/e.py    a Python file, hosted by the built-in kernel python
//	embed.py:function     a function or class in a Python file
//	./dir/file, /file     a kernel program
//	echo                  a built-in
//	other                 a file of that name in $GPURUN_PLUGIN_PATH
//	a.py → b              a chain of kernels, each with one of these names
//
// If there is no such kernel, the error is a fault of kind Incompatible that lists the
// available ones.
func (r Resolver) Resolve(name string, config plugins.Config) (Named, error) {
	if err := r.checkExec(name); err != nil {
		return Named{}, err
	}
	scheme, rest, hasScheme := strings.Cut(name, ":")
	switch {
	case strings.Contains(name, StepSeparator):
		return r.resolveSteps(strings.Split(name, StepSeparator), config)
	case hasScheme && schemes[scheme] != "":
		return r.resolveScheme(scheme, rest, json.RawMessage(bytes.TrimSpace(config)))
	case name == "":
		return Named{}, fault.NoKernel.New("no kernel: name one (available: %s)", r.available()).Set("echo")
	case isPython(name):
		return r.resolvePythons([]string{name}, []json.RawMessage{bytes.TrimSpace(config)})
	case hasScheme && !strings.Contains(name, "/"):
		return Named{}, fault.UnknownKernel.New("unknown kernel scheme %q; the schemes are exec:, openai: and serve:", scheme+":")
	case strings.Contains(name, "/"):
		return r.resolveFile(name, config)
	case slices.Contains(r.Builtins, name):
		return r.builtin(name, config)
	}
	for _, dir := range r.searchDirs() {
		if path := filepath.Join(dir, name); isFile(path) {
			return r.resolveFile(path, config)
		}
	}
	return Named{}, r.unknown(name)
}

// schemes are the built-ins that are named with what they run, each with an example.
var schemes = map[string]string{"exec": "exec:./program", "openai": "openai:http://127.0.0.1:8000/v1", "serve": "'serve:./server {port}'"}

// resolveScheme resolves the name of a built-in with a command or a URL.
func (r Resolver) resolveScheme(scheme, what string, config json.RawMessage) (Named, error) {
	if strings.TrimSpace(what) == "" {
		noun := "command"
		if scheme == "openai" {
			noun = "URL"
		}
		return Named{}, fault.NoKernel.New("%s: has no %s", scheme, noun).Set(schemes[scheme])
	}
	if scheme == "openai" {
		named, err := r.builtin(scheme, OpenAIConfig{URL: what, Config: config, Known: r.KnownServer})
		named.Within = scheme
		return named, err
	}
	var whole any = ServeConfig{Command: what, Config: config}
	if scheme == "exec" {
		whole = ExecConfig{Command: what, Mode: r.Exec.Mode, ID: r.Exec.ID, MaxLine: r.Exec.MaxLine, Config: config}
	}
	named, err := r.builtin(scheme, whole)
	named.Files = r.commandFiles(what)
	named.Data = slices.DeleteFunc(slices.Clone(named.Files), isCode)
	named.Reread = named.Code()
	return named, err
}

// builtin returns a built-in with its configuration, which is encoded unless it is already.
func (r Resolver) builtin(name string, config any) (Named, error) {
	if !slices.Contains(r.Builtins, name) {
		return Named{}, fault.UnknownKernel.New("this program has no %s kernel built in (available: %s)", name, r.available())
	}
	encoded, ok := config.(plugins.Config)
	if !ok {
		var err error
		if encoded, err = json.Marshal(config); err != nil {
			return Named{}, fault.KernelConfig.Of(fault.Usage, "kernel configuration: %w", err)
		}
	}
	return Named{Path: r.Self, Args: append(slices.Clone(r.SelfArgs), name), Config: encoded}, nil
}

// checkExec rejects exec options unless the kernel, or one of its steps, is an exec:
// kernel.
func (r Resolver) checkExec(name string) error {
	for _, step := range strings.Split(name, StepSeparator) {
		if strings.HasPrefix(step, "exec:") {
			return nil
		}
	}
	switch {
	case r.Exec.Mode != "":
		return fault.KernelUnsuited.New("an exec mode is for exec: kernels; %q is not one", name).Set("exec-mode")
	case r.Exec.ID != "":
		return fault.KernelUnsuited.New("an exec ID is for exec: kernels; %q is not one", name).Set("exec-id")
	}
	return nil
}

// path returns an absolute path; a relative one starts in the user's working folder.
func (r Resolver) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(r.Dir, name)
}

// searchDirs returns the folders of the search path. Relative ones start in the user's
// working folder.
func (r Resolver) searchDirs() []string {
	var dirs []string
	for _, dir := range filepath.SplitList(r.SearchPath) {
		if dir != "" {
			dirs = append(dirs, r.path(dir))
		}
	}
	return dirs
}

// Code returns the files that must not change while the job runs.
func (n Named) Code() []string {
	return slices.DeleteFunc(slices.Clone(n.Files), func(path string) bool { return slices.Contains(n.Data, path) })
}

// commandFiles returns the files that a command names: the program, scripts, settings. It
// skips the targets of redirections.
func (r Resolver) commandFiles(command string) []string {
	var files []string
	words := strings.Fields(command)
	for i, word := range words {
		if i > 0 && strings.HasSuffix(words[i-1], ">") {
			continue
		}
		path := r.path(word)
		if i == 0 && !strings.Contains(word, "/") {
			path, _ = exec.LookPath(word)
		}
		if isFile(path) {
			files = append(files, path)
		}
	}
	return files
}

// scripts are the extensions of files that an interpreter runs.
var scripts = []string{".py", ".sh", ".bash", ".pl", ".rb", ".js", ".mjs", ".ts", ".php", ".lua", ".r", ".jl", ".awk", ".sed", ".jq", ".jar"}

// isCode reports whether a file is a program or a script, as opposed to data, which a
// program may write to while it runs.
func isCode(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&0o111 != 0 || slices.Contains(scripts, strings.ToLower(filepath.Ext(path)))
}

func (r Resolver) resolveFile(name string, config plugins.Config) (Named, error) {
	path := r.path(name)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return Named{}, noFile(name, path, err)
	case info.IsDir():
		return Named{}, fault.KernelFile.New("kernel %s is a folder; build it first (go build -o kernel %s) and pass the program", name, name)
	case info.Mode()&0o111 == 0:
		return Named{}, fault.NotAKernel.New("kernel %s is not executable: chmod +x it, or run it with its interpreter", name).Set("…")
	}
	return Named{Path: path, Config: config, Files: []string{path}}, nil
}

// noFile reports that a kernel's file is not accessible, and suggests one in its folder
// with a similar name.
func noFile(name, path string, err error) error {
	dir, base := filepath.Split(path)
	entries, _ := os.ReadDir(dir)
	var candidates []string
	for _, entry := range entries {
		if !entry.IsDir() && filepath.Ext(entry.Name()) == filepath.Ext(base) {
			candidates = append(candidates, entry.Name())
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fault.KernelFile.New("kernel %s: %w", name, err)
	}
	hint := ""
	if near := nearest.Of(base, candidates, 3); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", strings.TrimSuffix(name, base)+near)
	}
	return fault.KernelFile.New("there is no kernel %s: no such file%s", name, hint).By(err)
}

func (r Resolver) unknown(name string) error {
	hint := "."
	candidates := append(r.installed(), r.Builtins...)
	if near := nearest.Of(name, candidates, 3); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", near)
	} else if isFile(filepath.Join(r.Dir, name)) {
		hint = fmt.Sprintf("; to use the file in the current directory, write ./%s.", name)
	}
	return fault.UnknownKernel.New("unknown kernel %q%s Available: %s", name, hint, r.available())
}

// namedAs are the built-ins that users name differently.
var namedAs = map[string]string{"exec": "exec:COMMAND", "openai": "openai:URL", "serve": "serve:COMMAND", "python": "FILE.py"}

func (r Resolver) available() string {
	names := slices.Sorted(slices.Values(slices.Concat(r.Builtins, r.installed())))
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "chain" }) // users name its steps instead
	for i, name := range names {
		names[i] = cmp.Or(namedAs[name], name)
	}
	return strings.Join(append(names, "files (./kernel)"), ", ")
}

// installed lists the programs in the search path.
func (r Resolver) installed() []string {
	var names []string
	for _, dir := range r.searchDirs() {
		entries, _ := os.ReadDir(dir)
		for _, entry := range entries {
			// Stat instead of entry.Info, because installed programs are often links.
			if info, err := os.Stat(filepath.Join(dir, entry.Name())); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				names = append(names, entry.Name())
			}
		}
	}
	return names
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// IsModelServer reports whether a kernel asks a model server.
func IsModelServer(kernel string) bool {
	return strings.HasPrefix(kernel, "openai:") || strings.HasPrefix(kernel, "serve:")
}

// SendsRequests reports whether a kernel passes the requests of batch files on to a model server:
// one that has a prompt makes requests of other records.
func SendsRequests(kernel string, config []byte) bool {
	var options struct{ Prompt string }
	_ = json.Unmarshal(config, &options) // the kernel reports what is wrong with it
	return options.Prompt == "" && IsModelServer(kernel)
}
