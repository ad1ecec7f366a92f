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

// onlyIn lists the only packages that may import a library, so that it can be replaced.
var onlyIn = map[string][]string{
	"github.com/prometheus/client_golang": {"internal/metrics"},
	"github.com/hashicorp/go-plugin":      {"plugins", "plugins/process", "plugins/protocol"},
	"github.com/NVIDIA/go-nvml":           {"gpu"},
	"github.com/vbauerster/mpb":           {"internal/progress"},
	"github.com/spf13/cobra":              {"cmd/gpurun"},
	"google.golang.org/grpc":              {"plugins", "plugins/kernelpb", "plugins/process", "plugins/protocol"},
	"github.com/goccy/go-yaml":            {"gpu", "gpu/lease", "internal/explain", "internal/jobfile"},
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

// TestImports: packages import what their rules allow, and rules allow only what is below.
func TestImports(t *testing.T) {
	rules := make(map[string]rule)
	var above []string
	for _, layer := range layers {
		for _, r := range layer.rules {
			rules[r.name] = r
			above = append(above, r.name)
			for _, name := range r.allowed {
				if slices.Contains(above, name) {
					t.Errorf("the rule of %s allows %s, which is not below it", r.name, name)
				}
			}
		}
	}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		rule, found := rules[name]
		if !found {
			t.Errorf("package %s has no rule: add it to its layer, and run go test ./internal/arch -update", name)
			continue
		}
		delete(rules, name)
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
	for name := range rules {
		t.Errorf("there is a rule for %s, but no such package", name)
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
