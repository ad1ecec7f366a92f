package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gpurun/gpurun"

// mayImport lists, for each package, the packages of this module that it may import outside
// tests. Names are relative to the module; "..." allows all.
var mayImport = map[string]struct {
	allowed []string
	why     string
}{
	"internal/fault":            {nil, "every package uses it, so it depends on none"},
	"internal/jsonline":         {nil, "bytes of one line: any package may use it, it depends on none"},
	"internal/rawnum":           {nil, "numbers as bytes: it depends on none"},
	"internal/proc":             {nil, "child processes, for any package"},
	"internal/arch":             {nil, "rules only"},
	"internal/filesum":          {nil, "checksums of code files, for any package"},
	"internal/nearest":          {nil, "suggestions for misspelled names, for any package"},
	"internal/profile":          {nil, "a profile of this process"},
	"internal/stdfd":            {nil, "descriptors as they were before this process ran"},
	"bench":                     {[]string{"..."}, "measurements"},
	"bench/sleep":               {[]string{"plugins"}, "a kernel like any author's"},
	"internal/crash":            {nil, "crash points, for tests"},
	"internal/disktest":         {nil, "a disk that can fill up, for tests"},
	"internal/proctest":         {nil, "a process that cannot be killed, for tests"},
	"chunk":                     {[]string{"internal/fault", "internal/jsonline", "internal/crash"}, "records, chunks and order know no processes and no devices"},
	"gpu":                       {[]string{"internal/fault", "internal/nearest"}, "devices know nothing of kernels or jobs"},
	"gpu/gputest":               {[]string{"gpu"}, "a simulated machine with GPUs, for tests"},
	"internal/owned":            {nil, "files and locks, for any package"},
	"gpu/lease":                 {[]string{"internal/fault", "internal/owned"}, "leases are files and figures: it queries no driver and knows no jobs"},
	"plugins/kernelpb":          {nil, "generated"},
	"plugins":                   {[]string{"plugins/kernelpb", "internal/proc", "internal/fault", "internal/jsonline", "internal/nearest", "internal/rawnum"}, "a kernel knows no devices' inventory and no jobs: authors import this package"},
	"plugins/echo":              {[]string{"plugins"}, "a built-in is a kernel like any author's"},
	"plugins/exec":              {[]string{"plugins", "internal/proc", "internal/fault", "internal/jsonline"}, "it starts processes, reports why they failed, and finds the member that identifies an answer"},
	"plugins/chain":             {[]string{"plugins", "internal/fault"}, "it calls other kernels as a worker does"},
	"plugins/builtin":           {[]string{"plugins", "plugins/chain", "plugins/echo", "plugins/exec", "plugins/minhash", "plugins/python"}, "the list of built-ins"},
	"plugins/kerneltest":        {[]string{"plugins", "internal/fault", "internal/jsonline"}, "authors run it against their kernels"},
	"internal/wire":             {[]string{"chunk", "internal/fault"}, "messages describe chunks, and carry failures"},
	"worker":                    {[]string{"plugins", "chunk", "internal/wire", "internal/proc", "internal/fault", "internal/filesum", "internal/jsonline", "internal/crash", "internal/profile"}, "one device, one kernel, one chunk: no inventory, no other workers"},
	"orchestrator":              {[]string{"chunk", "gpu", "internal/wire", "internal/proc", "internal/fault", "internal/filesum", "internal/crash", "internal/owned"}, "it never touches a kernel: workers do, in processes that may die"},
	"internal/progress":         {[]string{"orchestrator", "chunk", "gpu", "gpu/lease", "internal/server", "internal/fault"}, "it displays a job's events and a host, using gpu's terms"},
	"internal/server":           {[]string{"orchestrator", "gpu", "gpu/lease", "internal/fault", "internal/owned", "internal/proc"}, "it controls jobs and shows them; it starts none"},
	"cmd/gpurun":                {[]string{"..."}, "wiring"},
	"examples":                  {nil, "source for gpurun plugin new"},
	"examples/embed":            {[]string{"..."}, "a user's program"},
	"plugins/minhash":           {[]string{"plugins", "internal/fault"}, "a built-in is a kernel like any author's"},
	"examples/cuda-kernel":      {[]string{"plugins", "plugins/minhash", "examples/cuda-kernel/cuda"}, "an author's kernel: it may use only what other authors can use"},
	"examples/cuda-kernel/cuda": {nil, "only CUDA, for authors to copy"},
	"plugins/python":            {[]string{"plugins", "internal/proc", "internal/fault", "internal/jsonline", "internal/rawnum"}, "it starts an interpreter, and reads and writes records for it"},
}

// onlyIn lists the only packages that may import a library, so that it can be replaced.
var onlyIn = map[string][]string{
	"github.com/hashicorp/go-plugin": {"plugins"},
	"github.com/NVIDIA/go-nvml":      {"gpu"},
	"github.com/vbauerster/mpb":      {"internal/progress"},
	"github.com/spf13/cobra":         {"cmd/gpurun"},
	"google.golang.org/grpc":         {"plugins", "plugins/kernelpb"},
	"github.com/goccy/go-yaml":       {"gpu", "gpu/lease"},
}

type goPackage struct {
	ImportPath string
	Doc        string
	Imports    []string
	GoFiles    []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,GoFiles", module+"/...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	var list []goPackage
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		rule, known := mayImport[name]
		if !known {
			t.Errorf("package %s has no rule: list in mayImport and in ARCHITECTURE.md what it may import", name)
			continue
		}
		for _, path := range p.Imports {
			local, isLocal := strings.CutPrefix(path, module+"/")
			if isLocal && !slices.Contains(rule.allowed, local) && !slices.Contains(rule.allowed, "...") {
				t.Errorf("%s must not import %s: %s", name, local, rule.why)
			}
			for library, homes := range onlyIn {
				if strings.HasPrefix(path, library) && !slices.Contains(homes, name) {
					t.Errorf("%s must not import %s: only %v may", name, path, homes)
				}
			}
		}
	}
}

func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) > 0 && len(p.Doc) < 20 {
			t.Errorf("package %s has no package comment", p.ImportPath)
		}
	}
}

// TestInstallable: "go install …@version" refuses a module that replaces or excludes.
func TestInstallable(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct{ Replace, Exclude []json.RawMessage }
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if len(mod.Replace)+len(mod.Exclude) > 0 {
		t.Errorf("go.mod: %d replace and %d exclude: want none", len(mod.Replace), len(mod.Exclude))
	}
}
