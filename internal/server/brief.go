package server

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"github.com/gpurun/gpurun/internal/shell"
)

// The name of a kernel may be a command line, which may contain secrets: exec:curl -u me:password.
// On a loopback address every user of the machine can read a response, so only a reader with
// the token gets more than the program's name.

// briefHeader marks a request of a reader without the token. A host passes it on to its jobs.
const briefHeader = "Gpurun-Brief"

// brief shortens the names of kernels in responses to requests that are marked.
func brief(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(briefHeader) != "" {
			w = briefWriter{w}
		}
		next.ServeHTTP(w, r)
	})
}

// briefWriter shortens the names of kernels in JSON. Handlers write whole values.
type briefWriter struct{ http.ResponseWriter }

func (w briefWriter) Write(p []byte) (int, error) {
	short := p
	switch w.Header().Get("Content-Type") {
	case "application/json", "text/event-stream":
		short = kernelMember.ReplaceAllFunc(p, briefMember)
	}
	if _, err := w.ResponseWriter.Write(short); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Unwrap is for http.ResponseController.
func (w briefWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// kernelMember is a member whose value is the name of a kernel. Its quotes would be escaped
// within a string.
var kernelMember = regexp.MustCompile(`"(?:kernel|step)":\s*"(?:[^"\\]|\\.)*"`)

func briefMember(member []byte) []byte {
	name, value, _ := strings.Cut(string(member), ":")
	var full string
	if json.Unmarshal([]byte(value), &full) != nil {
		full = ""
	}
	short, _ := json.Marshal(briefName(full)) // a string
	return append([]byte(name+":"), short...)
}

// briefName returns the name of a kernel without the arguments of its commands.
func briefName(name string) string {
	const arrow = " → " // between the steps of a chain
	steps := strings.Split(name, arrow)
	for i, step := range steps {
		scheme, command, _ := strings.Cut(step, ":")
		if scheme == "exec" || scheme == "serve" {
			steps[i] = scheme + ":" + program(command)
		}
	}
	return strings.Join(steps, arrow)
}

// program returns the first word of a command, and … for what follows or cannot be told
// without a shell, such as VARIABLE=secret.
func program(command string) string {
	word := shell.FirstWord(command)
	if strings.TrimSpace(command) == word {
		return cmp.Or(word, "…")
	}
	return strings.TrimSpace(word + " …")
}
