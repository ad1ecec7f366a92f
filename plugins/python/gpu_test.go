package python_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python"
	"github.com/gpurun/gpurun/plugins/resolve"
	"github.com/gpurun/gpurun/plugins/symptom"
)

// A kernel that needs a GPU must not compute on the CPU because its framework does not see the
// device.
func TestFrameworkMustSeeTheGPU(t *testing.T) {
	needPython(t)
	const (
		needs   = "needs_gpu = True\n"
		process = "def process(batch): return batch\n"
		noCUDA  = "needs_gpu is True, but torch 9.9+cpu in "
	)
	torch := func(cuda, available string) map[string]string {
		return map[string]string{
			"torch/__init__.py": "from torch import version\n__version__ = '9.9+cpu'\nclass cuda:\n    is_available = staticmethod(lambda: " + available + ")\n    is_initialized = is_available\n",
			"torch/version.py":  "__version__ = '9.9+cpu'\ncuda: object = " + cuda + "\nhip: object = None\n",
		}
	}
	cpu, driver, sees := torch("None", "False"), torch("'12.8'", "False"), torch("'12.8'", "True")
	jax := func(platform string) map[string]string {
		return map[string]string{"jax/__init__.py": "__version__ = '0.1'\nclass Device: platform, device_kind = '" + platform + "', 'a device'\ndef devices(): return [Device]\n"}
	}
	both := torch("None", "False")
	both["jax/__init__.py"] = jax("gpu")["jax/__init__.py"]
	for name, test := range map[string]struct {
		files     map[string]string
		source    string
		describes string // the error of Describe, so that a plan shows it
		opens     string // the error of Open
		kind      fault.Kind
	}{
		"torch without CUDA":            {files: cpu, source: needs + "import torch\n" + process, describes: noCUDA, kind: fault.Incompatible},
		"imported by a library":         {files: cpu, source: needs + "import importlib\ntorch = importlib.import_module('torch')\n" + process, opens: noCUDA, kind: fault.Incompatible},
		"imported by setup":             {files: cpu, source: needs + process + "def setup(ctx): __import__('torch')\n", opens: noCUDA, kind: fault.Incompatible},
		"imported by a class":           {files: cpu, source: needs + "class process:\n    def __init__(self): __import__('torch')\n    def __call__(self, batch): return batch\n", opens: noCUDA, kind: fault.Incompatible},
		"no GPU needed":                 {files: cpu, source: "import torch\n" + process},
		"torch with CUDA, not seen":     {files: driver, source: needs + "import torch\n" + process, opens: "no CUDA GPUs are available to torch 9.9+cpu", kind: fault.Device},
		"torch sees it":                 {files: sees, source: needs + "import torch\n" + process},
		"jax without a plugin":          {files: jax("cpu"), source: needs + "import jax\n" + process, opens: "needs_gpu is True, but jax 0.1 in ", kind: fault.Incompatible},
		"jax sees it":                   {files: jax("gpu"), source: needs + "import jax\n" + process},
		"jax sees it, torch is a tool":  {files: both, source: needs + "import torch, jax\n" + process},
		"no framework":                  {source: needs + process},
		"a module of that name":         {files: map[string]string{"torch.py": "x = 1\n"}, source: needs + "import torch\n" + process},
		"prepare processes have no GPU": {files: sees, source: needs + process + "import torch\ndef setup_prepare(ctx): torch.cuda.is_available = lambda: False\ndef prepare(batch): return 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, test.source)
			for path, text := range test.files {
				path = filepath.Join(filepath.Dir(file), path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PYTHONPATH", filepath.Dir(file))
			k := python.New()
			defer k.Close()
			c := config(t, resolve.PythonConfig{File: file})
			_, err := k.Describe(t.Context(), c)
			want := test.describes
			if err == nil && want == "" {
				err, want = k.Open(t.Context(), plugins.Device{Name: "GPU 0", GPU: true, Count: 1, Threads: 1}, c), test.opens
			}
			switch {
			case want == "" && err != nil:
				t.Errorf("%v\n%s", err, detail(err))
			case want != "" && (err == nil || !strings.HasPrefix(err.Error(), "kernel kernel.py: "+want)):
				t.Errorf("got %v, not %s", err, want)
			case want != "":
				kind := fault.KindOf(err)
				if found, _ := symptom.Diagnose(err.Error()); kind == fault.Unknown {
					if kind = found; kind == fault.Unknown {
						kind = fault.Incompatible // as Open's errors are classified
					}
				}
				if kind != test.kind {
					t.Errorf("kind %s: %v", kind, err)
				}
			}
		})
	}
}
