package python

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/template"
)

// jobVariables are the environment variables that differ from job to job, or from shell to shell,
// although nothing that a package does when it is imported depends on them. A warm template does not
// have them; its children get them.
var jobVariables = append([]string{
	"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "GOMAXPROCS",
	"PWD", "OLDPWD", "SHLVL", "_", "COLUMNS", "LINES",
}, threadVariables...)

// markSpace is the length of the marks of a warm template, which shorter ones replace.
const markSpace = 160

// keepWarm turns a request into one for a warm template. Such a template has imported the installed
// packages that the file imports, and nothing of the user's own.
func (s starting) keepWarm(r *template.Request, message *forkMessage, keep time.Duration, source []byte) {
	if strings.ContainsRune(r.Path, '/') {
		r.Path = absolute(r.Path)
	}
	var shared []string
	for _, entry := range s.env {
		name, value, _ := strings.Cut(entry, "=")
		if name == "PYTHONPATH" {
			entry = name + "=" + absolute(value)
		}
		if slices.Contains(jobVariables, name) || strings.HasPrefix(name, "GPURUN_") {
			message.Env[name] = value
		} else {
			shared = append(shared, entry)
		}
	}
	slices.Sort(shared)
	identity := sha256.New()
	fmt.Fprintf(identity, "%s\n%s\n%q\n%x", s.program, fileState(r.Path), append(r.Args, shared...), sha256.Sum256(source))
	r.Key, r.Keep = "warm "+hex.EncodeToString(identity.Sum(nil)), keep
	r.About = filepath.Base(r.Args[0]) + " in " + r.Path
	blank := strings.Repeat("-", markSpace)
	r.Env = append(append(unset([]string{nvmlVariable}), shared...), workerVariable+"="+blank, template.MarkVariable+"="+blank)
	if s.program == "prepare" { // it must not see a GPU when it imports, either
		r.Env = append(r.Env, "CUDA_VISIBLE_DEVICES=")
	}
}

// absolute makes a list of paths absolute: a warm template runs in another folder.
func absolute(list string) string {
	paths := filepath.SplitList(list)
	for i, path := range paths {
		if full, err := filepath.Abs(path); err == nil {
			paths[i] = full
		}
	}
	return strings.Join(paths, ":")
}

// fileState identifies a file and its version.
func fileState(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return path
	}
	return fmt.Sprintf("%s %d %s", path, info.Size(), info.ModTime())
}
