package python_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// The kernels of examples/llm, on stubs of the libraries that they use.
func TestExamplesOnStubs(t *testing.T) {
	needPython(t)
	folder, err := filepath.Abs("../../examples/llm")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", filepath.Join(folder, "testdata", "stubs")+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"))
	for name, limit := range map[string]string{"transformers_batching": "max_new_tokens", "vllm_engine": "max_tokens"} {
		t.Run(name, func(t *testing.T) {
			c := config(t, resolve.PythonConfig{
				File:   filepath.Join(folder, name+".py"),
				Config: json.RawMessage(`{"model":"stub","` + limit + `":5}`),
			})
			k := python.New()
			defer k.Close()
			info, err := k.Describe(t.Context(), c)
			if err != nil || info.Concurrency < 256 {
				t.Fatalf("%+v, %v", info, err)
			}
			if err := k.Open(t.Context(), plugins.Device{Name: "GPU 0", GPU: true, Count: 1, Threads: 2}, c); err != nil {
				t.Fatalf("%v\n%s", err, detail(err))
			}
			expect(t, k, []string{`{"prompt":"abc"}`, `{"prompt":"a long prompt"}`},
				[]string{`{"prompt":"abc","text":"cba","tokens":3}`, `{"prompt":"a long prompt","text":"tpmor","tokens":5}`})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if a := k.(plugins.Concurrent).Answer(ctx, batch(`{"prompt":"hang"}`).At(0)); a.Verdict != plugins.Failed {
				t.Errorf("a record that hangs: %s", show(a))
			}
			if name == "transformers_batching" {
				if a := ask(t, k, `{"prompt":"error"}`); !strings.Contains(show(a), "too long") {
					t.Error(show(a))
				}
				if a := ask(t, k, `{"prompt":"die"}`); fault.KindOf(a.Err) != fault.Crash {
					t.Errorf("an engine that dies: %s", show(a))
				}
				return
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// On a CPU, transformers cannot size its cache without psutil, and would wait for ever.
func TestTransformersWithoutPsutil(t *testing.T) {
	needPython(t)
	folder, err := filepath.Abs("../../examples/llm")
	if err != nil {
		t.Fatal(err)
	}
	without := t.TempDir()
	if err := os.WriteFile(filepath.Join(without, "psutil.py"), []byte("raise ImportError('not installed')\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", strings.Join([]string{without, filepath.Join(folder, "testdata", "stubs"), os.Getenv("PYTHONPATH")}, string(os.PathListSeparator)))
	c := config(t, resolve.PythonConfig{File: filepath.Join(folder, "transformers_batching.py"), Config: json.RawMessage(`{"model":"stub"}`)})
	k := python.New()
	defer k.Close()
	if err := k.Open(t.Context(), plugins.Device{Name: "CPU 0", Threads: 2}, c); err == nil || !strings.Contains(err.Error()+detail(err), "pip install psutil") {
		t.Errorf("%v", err)
	}
}
