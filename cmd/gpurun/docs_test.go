package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/jobfile"
	"github.com/gpurun/gpurun/internal/jobs"
)

// TestDocs runs every command and snippet of the documentation, each page in a folder and a
// shell of its own. It starts many processes, so it runs without the race detector.
func TestDocs(t *testing.T) {
	pages := documents(t)
	if raceEnabled {
		t.Skip("run without -race, as make test does")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("SKIPPED: no bash: the commands of the documentation are not run")
	}
	downloadModules(t)
	env := append(docGoEnvironment(t), "NVMLSTUB_DIR="+nvmlStub(t), "XDG_CACHE_HOME="+t.TempDir()) // pages share what Python has compiled
	for _, page := range pages {
		if len(page.steps) > 0 {
			t.Run(page.path, func(t *testing.T) {
				t.Parallel()
				newReader(t, page, slices.Clip(env)).read()
			})
		}
	}
}

// docGoEnvironment lets pages build Go programs without a network. A module that requires gpurun
// needs the requirements of every module in the graph, which gpurun itself does not load.
func docGoEnvironment(t *testing.T) []string {
	t.Helper()
	if out, err := exec.Command("go", "mod", "graph").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: the requirements of all modules cannot be had: %v: %.300s", err, out)
	}
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOCACHE").Output()
	values := strings.Fields(string(out))
	if err != nil || len(values) != 2 {
		t.Fatalf("go env: %q, %v", out, err)
	}
	return []string{"GOMODCACHE=" + values[0], "GOCACHE=" + values[1], "GOFLAGS=-mod=mod -trimpath -ldflags=-w", "CGO_CFLAGS=" + os.Getenv("CGO_CFLAGS"), "GOPROXY=off", "GOSUMDB=off", "GOTOOLCHAIN=local"}
}

// reader does what a page says, in its order.
type reader struct {
	*testing.T
	page   document
	dir    string // the reader's working folder
	hidden string // state that the reader does not see
	env    []string
	python string
	groups []int // of scripts with commands in the background
}

func newReader(t *testing.T, page document, env []string) *reader {
	t.Helper()
	base, err := os.MkdirTemp("/tmp", "gpurun-docs-") // short: unix sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{T: t, page: page, dir: filepath.Join(base, "work"), hidden: filepath.Join(base, "state"), python: "python3"}
	t.Cleanup(func() {
		for _, group := range r.groups {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
		_ = exec.Command("chmod", "-R", "u+w", base).Run()
		_ = os.RemoveAll(base)
	})
	for _, folder := range []string{r.dir, r.hidden} {
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	files := "testdata/docs"
	if strings.HasPrefix(page.path, "examples/") { // the page of an example is read in its folder
		files = filepath.Join("../..", filepath.Dir(page.path))
	}
	if err := os.CopyFS(r.dir, os.DirFS(files)); err != nil {
		t.Fatal(err)
	}
	// The source is where a reader cloned it.
	if err := os.Symlink(source, filepath.Join(base, "gpurun")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(source, "cmd/gpurun/testdata/standins") + ":" + os.Getenv("PATH")
	python := cmp.Or(os.Getenv("GPURUN_TEST_PYTHON"), filepath.Join(source, ".venv/bin/python"))
	if starts(python) {
		r.python = python
		path = filepath.Dir(python) + ":" + path
		env = append(env, "VIRTUAL_ENV="+filepath.Dir(filepath.Dir(python)))
	}
	r.env = append(env, "PATH="+path, "HOME="+base, "SOURCE="+source, "PYTHONPATH="+filepath.Join(source, "python"), "PYTHONDONTWRITEBYTECODE=1",
		"XDG_STATE_HOME="+filepath.Join(r.hidden, "xdg"), lease.Variable+"="+filepath.Join(r.hidden, "leases"),
		jobs.Variable+"="+filepath.Join(r.hidden, "jobs"), "TERM=dumb", "LANG=C.UTF-8")
	return r
}

// starts reports whether an interpreter starts. The answer is the same for all pages.
func starts(python string) bool {
	answer, _ := pythonStarts.LoadOrStore(python, sync.OnceValue(func() bool { return exec.Command(python, "-c", "").Run() == nil }))
	return answer.(func() bool)()
}

var pythonStarts sync.Map

func (r *reader) read() {
	for i, step := range r.page.steps {
		for _, need := range step.notes.needs {
			if !r.has(need) {
				r.Skipf("SKIPPED: %s:%d: no %s: the rest of the page is not tested", r.page.path, step.line, need)
			}
		}
		switch {
		case step.notes.skip != "":
			r.Logf("SKIPPED: %s:%d: %s", r.page.path, step.line, step.notes.skip)
			r.checkSyntax(step)
		case step.notes.file != "":
			r.write(step.notes.file, step.text)
			r.checkData(step)
		default:
			r.do(step)
		}
		if name := fileName(step); name != "" && step.notes.skip == "" && !strings.HasPrefix(name, "test_") && !usedLater(name, r.page.steps[i+1:]) {
			r.Errorf("%s:%d: no later command uses %s", r.page.path, step.line, name)
		}
		if r.Failed() {
			return
		}
	}
}

// do does what a fence without an exception says.
func (r *reader) do(step docStep) {
	name := fileName(step)
	switch step.lang {
	case "sh":
		r.shell(step, step.text, step.notes.exit)
	case "console":
		r.console(step)
	case "python":
		switch {
		case name == "":
			r.program(step, r.python, "-c", wrapped(step))
		default:
			r.write(name, wrapped(step))
			r.checkSyntax(step)
			if module, isTest := strings.CutSuffix(name, ".py"); isTest && strings.HasPrefix(name, "test_") {
				r.program(step, r.python, "-c", fmt.Sprintf("import %s as t\nfor n in dir(t):\n    if n.startswith('test_'): getattr(t, n)()", module))
			}
		}
	case "yaml", "json", "jsonl":
		if name != "" {
			r.write(name, step.text)
		}
		r.checkData(step)
	case "go":
		if name != "" {
			r.write(name, step.text)
		}
		if !strings.Contains(wrapped(step), "package ") {
			r.Errorf("%s:%d: a fragment of Go needs a note wrap", r.page.path, step.line)
		}
	case "text":
		if command := regexp.MustCompile(`(?m)^\s*(\$ |gpurun |pip |make |go (run|build|test) |python3? ).*$`).FindString(step.text); command != "" {
			r.Errorf("%s:%d: %q is not tested: use sh or console", r.page.path, step.line, command)
		}
	case "journal": // TestFormatDocument
	case "help": // TestReference
		if !strings.HasPrefix(r.page.path, "docs/reference/") {
			r.Errorf("%s:%d: help is for docs/reference", r.page.path, step.line)
		}
	default:
		r.Errorf("%s:%d: %s is not tested: see docs_test.go", r.page.path, step.line, step.lang)
	}
}

// fileName is the file that the first line of a fence names: # embed.py, // main.go.
func fileName(step docStep) string {
	match := regexp.MustCompile(`^(?:#|//) ([\w./-]+\.(?:py|yaml|yml|go|sh))\n`).FindStringSubmatch(step.text)
	if match == nil {
		return step.notes.file
	}
	return match[1]
}

func usedLater(name string, steps []docStep) bool {
	module := strings.TrimSuffix(filepath.Base(name), ".py")
	for _, step := range steps {
		if step.notes.skip == "" && step.lang != "text" && (strings.Contains(step.text, filepath.Base(name)) || strings.Contains(step.text, "import "+module)) {
			return true
		}
	}
	return strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "go.mod") // TestDocsGo, and the go command
}

// wrapped is the fence within the code of its note.
func wrapped(step docStep) string {
	if step.notes.wrap == "" {
		return step.text
	}
	return strings.Replace(step.notes.wrap, "SNIPPET", step.text, 1) + "\n"
}

func (r *reader) write(name, text string) {
	path := filepath.Join(r.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o777)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o666)
	}
	if err != nil {
		r.Fatal(err)
	}
}

// pythonHas has the modules that pages need, and whether they can be imported.
var pythonHas sync.Map

func (r *reader) has(need string) bool {
	kind, name, _ := strings.Cut(need, ":")
	switch kind {
	case "python":
		answer, _ := pythonHas.LoadOrStore(name, sync.OnceValue(func() bool { return exec.Command(r.python, "-c", "import "+name).Run() == nil }))
		return answer.(func() bool)()
	case "program":
		_, err := exec.LookPath(name)
		return err == nil
	case "gpus": // simulated ones
		for _, entry := range r.env {
			if entry == "NVMLSTUB_DIR=" {
				return false
			}
		}
		return true
	}
	r.Fatalf("unknown need %q", need)
	return false
}

// checkSyntax checks what is not run.
func (r *reader) checkSyntax(step docStep) {
	switch step.lang {
	case "sh":
		r.program(step, "bash", "-nc", step.text)
		makefile, _ := os.ReadFile("../../Makefile")
		beside, _ := os.ReadFile(filepath.Join("../..", filepath.Dir(r.page.path), "Makefile"))
		for _, match := range regexp.MustCompile(`(?m)^make ([a-z][a-z-]*)`).FindAllStringSubmatch(step.text, -1) {
			if !strings.Contains("\n"+string(makefile)+string(beside), "\n"+match[1]+":") {
				r.Errorf("%s:%d: there is no make %s", r.page.path, step.line, match[1])
			}
		}
	case "python":
		r.program(step, r.python, "-c", "import sys; compile(sys.argv[1], 'snippet', 'exec')", wrapped(step))
	}
}

// checkData checks that data is valid, with … for what is left out.
func (r *reader) checkData(step docStep) {
	switch step.lang {
	case "yaml":
		var value any
		err := yaml.Unmarshal([]byte(step.text), &value)
		if err == nil && strings.HasPrefix(filepath.Base(fileName(step)), "job") {
			_, err = jobfile.Parse(fileName(step), []byte(step.text), jobSettings, checkSetting)
		}
		if err != nil {
			r.Errorf("%s:%d: %v", r.page.path, step.line, err)
		}
	case "json", "jsonl":
		text := strings.NewReplacer(",…", "", ", …", "", `"…"`, `""`, "…", "").Replace(step.text)
		if json.Valid([]byte(text)) {
			return
		}
		for line := range strings.Lines(text) {
			if strings.TrimSpace(line) != "" && !json.Valid([]byte(line)) {
				r.Errorf("%s:%d: not valid JSON: %s", r.page.path, step.line, line)
			}
		}
	}
}

// console runs the commands of a transcript and compares what they print, in which … is
// anything.
func (r *reader) console(step docStep) {
	parts := regexp.MustCompile(`(?m)^\$ `).Split(step.text, -1)
	if parts[0] != "" {
		r.Errorf("%s:%d: a transcript begins with $ and a command", r.page.path, step.line)
		return
	}
	for i, part := range parts[1:] {
		command, want, _ := strings.Cut(strings.ReplaceAll(part, "\\\n> ", "\\\n"), "\n")
		for strings.HasSuffix(command, "\\") {
			var next string
			next, want, _ = strings.Cut(want, "\n")
			command += "\n" + next
		}
		exit := 0
		if i == len(parts)-2 {
			exit = step.notes.exit
		}
		got := r.shell(step, command+"\n", exit)
		if step.notes.output != "" || strings.TrimSpace(want) == "" {
			continue
		}
		words := regexp.MustCompile(`[ \t]+`)
		var pattern strings.Builder
		for _, line := range strings.Split(strings.TrimRight(want, "\n"), "\n") {
			line = regexp.QuoteMeta(strings.TrimRight(words.ReplaceAllString(line, " "), " "))
			if line == "…" {
				pattern.WriteString(`(.*\n)*`)
			} else {
				pattern.WriteString(strings.ReplaceAll(line, "…", ".*") + `\n`)
			}
		}
		if got := words.ReplaceAllString(got, " "); !regexp.MustCompile(`(?m)^` + pattern.String()).MatchString(strings.ReplaceAll(got, " \n", "\n")) {
			r.Errorf("%s:%d: %s printed:\n%s\nwant:\n%s", r.page.path, step.line, command, got, want)
		}
	}
}

// prelude keeps the folder and the exported variables from fence to fence, as in a terminal.
// Commands of a page are often alternatives with the same output, so a run replaces what an
// earlier command wrote there, unless the page resumes it.
//
// A server runs in the background from where the page starts it, on a free port instead of the
// one in the page. A module that the page builds is completed by the go command first, and then
// compiled in a workspace with gpurun, whose packages are then those that this test was built
// from: as a dependency, they would be compiled once more. Programs that no machine for tests has are stand-ins (testdata/standins).
// Machines share /shared: here, the folder of the page.
const prelude = `
keep=$KEEP
[ -e "$HIDDEN/env" ] && . "$HIDDEN/env" && cd "$(cat "$HIDDEN/pwd")"
KEEP=$keep
trap 'export -p > "$HIDDEN/env"; pwd > "$HIDDEN/pwd"' EXIT
gpurun() {
	if [ "$1" = run ] && [ -z "$KEEP" ]; then
		local before= word
		for word; do
			case $before in -o) [ "$word" = - ] || rm -rf -- "${word%/}" "${word%/}.gpurun" ;; esac
			before=$word
		done
	fi
	local words=() model=8000
	[ -e "$HIDDEN/model-port" ] && model=$(cat "$HIDDEN/model-port")
	for word; do
		word=${word//\/shared\//$PWD/}
		word=${word/#127.0.0.1:9401/127.0.0.1:0}
		words+=("${word/#openai:http:\/\/127.0.0.1:8000/openai:http://127.0.0.1:$model}")
	done
	if [ "$1" = serve ]; then
		command gpurun "${words[@]}" --listen 127.0.0.1:0 > "$HIDDEN/serve" 2>&1 &
		await grep -q http:// "$HIDDEN/serve"
		python3 -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1])' "$(grep -o 'http://[^#]*' "$HIDDEN/serve")"
	else
		command gpurun "${words[@]}"
	fi
}
go() {
	[ "$1" = build ] || [ "$1" = run ] || { command go "$@"; return; }
	command go list -mod=mod -deps . > /dev/null
	[ -e go.work ] || command go work init . "$SOURCE"
	local words=() word
	for word; do [ "$word" = -mod=mod ] || words+=("$word"); done
	GOFLAGS=${GOFLAGS/-mod=mod /} command go "${words[@]}"
}
vllm() {
	command vllm "$@" &
	await test -e "$HIDDEN/model-port"
}
await() {
	for i in $(seq 600); do
		"$@" 2> /dev/null && return
		sleep 0.1
	done
	echo "in vain: $*"
	return 1
}
set -e
`

// shell runs a script and returns what it printed.
func (r *reader) shell(step docStep, script string, exit int) string {
	return r.start(step, exit, "bash", "-c", prelude+script)
}

func (r *reader) program(step docStep, name string, args ...string) { r.start(step, 0, name, args...) }

func (r *reader) start(step docStep, exit int, name string, args ...string) string {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Minute)
	defer cancel()
	out, err := os.Create(filepath.Join(r.hidden, "output")) // a pipe would wait for processes in the background
	if err != nil {
		r.Fatal(err)
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.dir, out, out
	cmd.Env = append(r.env, "HIDDEN="+r.hidden, "KEEP=")
	if step.notes.keep {
		cmd.Env = append(cmd.Env, "KEEP=1")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	if cmd.Process != nil && regexp.MustCompile(`(?m)[^&]&\s*$|^gpurun serve\b|^vllm `).MatchString(step.text) {
		r.groups = append(r.groups, cmd.Process.Pid)
	}
	printed, _ := os.ReadFile(out.Name())
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != exit {
		r.Fatalf("%s:%d: %v, want status %d\n%s\nprinted:\n%s", r.page.path, step.line, err, exit, step.text, printed)
	}
	return string(printed)
}
