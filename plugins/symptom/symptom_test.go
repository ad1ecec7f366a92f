package symptom

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// recognize returns the kind of a failure of the kernel or its device, and whether the
// text shows one.
func recognize(message string) (fault.Kind, bool) {
	kind, sign := Diagnose(message)
	if sign == fault.HostMemory {
		kind = fault.Unknown
	}
	return kind, kind != fault.Unknown
}

// The examples of each pattern and each of its spellings are recognized by it, and by no earlier one: the
// table has no dead rows and is in the right order.
func TestSymptoms(t *testing.T) {
	type example struct {
		message string
		kind    fault.Kind
		sign    fault.Sign
	}
	var all []example
	for _, group := range examples {
		for _, message := range group.list {
			all = append(all, example{message, group.kind, group.sign})
		}
	}
	first := func(line string) string {
		for _, group := range knownSymptoms {
			for _, pattern := range group.patterns {
				if matches(line, pattern) {
					return pattern
				}
			}
		}
		return ""
	}
	shown := make(map[string]bool)
	for _, e := range all {
		shown[first(strings.ToLower(withoutQuotes(e.message)))] = true
	}
	for _, group := range knownSymptoms {
		for _, pattern := range group.patterns {
			if pattern != strings.ToLower(pattern) {
				t.Errorf("%q: not lowercase", pattern)
			}
			if !shown[pattern] {
				t.Errorf("%q recognizes no example", pattern)
			}
			for spelling := range strings.SplitSeq(pattern, "|") {
				message := strings.ReplaceAll(strings.TrimPrefix(spelling, "^"), "*", " ")
				all = append(all, example{message, group.kind, group.sign})
				if found := first(message); found != pattern {
					t.Errorf("%q finds %q instead of %q", message, found, pattern)
				}
			}
		}
	}
	for _, e := range all {
		if kind, sign := Diagnose(e.message); kind != e.kind || sign != e.sign {
			t.Errorf("%q is %s, %q", e.message, kind, sign)
		}
	}
}

// TestHostMemoryIsKnown: exhausted host memory is distinguished from device memory, and
// from a record that mentions it.
func TestHostMemoryIsKnown(t *testing.T) {
	messages := []string{
		"Traceback (most recent call last):\n  File \"a.py\", line 1\nMemoryError",
		"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
		"fatal error: runtime: out of memory\n\nruntime stack:\nruntime.throw({0x5d3c5e?, 0x0?})\n\t/usr/lib/go/src/runtime/panic.go:1101",
	}
	for _, message := range messages {
		if kind, sign := Diagnose(message); kind != fault.OOM || sign != fault.HostMemory {
			t.Errorf("%q is %s, %q", message, kind, sign)
		}
		if kind, ok := recognize(message); ok {
			t.Errorf("%q is %s of the device", message, kind)
		}
	}
	for _, message := range []string{
		"ValueError: cannot parse: MemoryError is an exception",
		"MemoryError: std::bad_alloc: CUDA error at: cuda_memory_resource.hpp68: cudaErrorMemoryAllocation out of memory",
	} {
		if _, sign := Diagnose(message); sign == fault.HostMemory {
			t.Errorf("%q is taken for the host's memory", message)
		}
	}
}

// Messages from a real H200 (driver 580) and from threads on the web.
func TestClassify(t *testing.T) {
	for name, test := range map[string]struct {
		message string
		kind    fault.Kind
	}{
		"PyTorch": {`Traceback (most recent call last):
  File "<stdin>", line 2, in <module>
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 131072.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 139.29 GiB is free. Including non-PyTorch memory, this process has 518.00 MiB memory in use.`, fault.OOM},
		"PyTorch's advice after it": {`Traceback (most recent call last):
  File "/opt/torch/_tensor_str.py", line 155, in __init__
    tensor_view, torch.isfinite(tensor_view) & tensor_view.ne(0)
                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^
torch.AcceleratorError: CUDA error: device-side assert triggered
Search for ` + "`cudaErrorAssert' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information." + `
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with ` + "`TORCH_USE_CUDA_DSA`" + ` to enable device-side assertions.
`, fault.Crash},
		"that advice with ECC": {`RuntimeError: CUDA error: uncorrectable ECC error encountered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
Compile with ` + "`TORCH_USE_CUDA_DSA`" + ` to enable device-side assertions.`, fault.Device},
		"CuPy, and its tidying up": {`Traceback (most recent call last):
  File "cupy_backends/cuda/api/runtime.pyx", line 146, in cupy_backends.cuda.api.runtime.check_status
cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access was encountered
Exception ignored in: 'cupy.cuda.function.Module.__dealloc__'
Traceback (most recent call last):
  File "cupy_backends/cuda/api/driver.pyx", line 73, in cupy_backends.cuda.api.driver.check_status
cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered`, fault.Crash},
		"JAX": {`  File "/opt/jax/_src/numpy/reductions.py", line 312, in sum
    return _reduce_sum(a, axis=_ensure_optional_axes(axis), dtype=dtype, out=out,
jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4.00TiB with allocator GPU_0_bfc on device 0. [tf-allocator-allocation-error='']
--------------------
For simplicity, JAX has removed its internal frames from the traceback of the following exception. Set JAX_TRACEBACK_FILTERING=off to include these.`, fault.OOM},
		"C++, uncaught": {`terminate called after throwing an instance of 'c10::AcceleratorError'
  what():  CUDA error: uncorrectable ECC error encountered
Exception raised from c10_cuda_check_implementation at /pytorch/c10/cuda/CUDAException.cpp:42 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x80 (0x7f3009ed9eb0 in libc10.so)`, fault.Device},
		"llama.cpp": {`ggml_backend_cuda_buffer_type_alloc_buffer: allocating 14136.04 MiB on device 0: cudaMalloc failed: out of memory
ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 14822711296
graph_reserve: failed to allocate compute buffers
main: exiting due to model loading error`, fault.OOM},
		"cause of another": {`Traceback (most recent call last):
  File "a.py", line 2, in f
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 9, in <module>
    raise RuntimeError("inference failed") from e
RuntimeError: inference failed`, fault.OOM},
		"the last counts most": {`Traceback (most recent call last):
  File "a.py", line 2, in f
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 9, in <module>
torch.AcceleratorError: CUDA error: an illegal memory access was encountered`, fault.Crash},
		"a destructor after it": {`Traceback (most recent call last):
  File "a.py", line 2, in <module>
ValueError: Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.84 GiB).
Exception ignored in: <function LLM.__del__ at 0x7f>
Traceback (most recent call last):
  File "b.py", line 7, in __del__
AttributeError: 'NoneType' object has no attribute 'close'`, fault.OOM},
		"every line with a prefix": {`[rank0]: Traceback (most recent call last):
[rank0]:   File "a.py", line 3, in <module>
[rank0]: RuntimeError: CUDA error: unspecified launch failure`, fault.Crash},
		"an exception group": {`  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 3, in <module>
  | ExceptionGroup: workers (1 sub-exception)
  +-+---------------- 1 ----------------
    | torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.`, fault.OOM},
		"old text of CUDA 46": {"cuda runtime error (46) : all CUDA-capable devices are busy or unavailable at THCStorage.cu:66", fault.Device},
		"wrapped by Go":       {"score batch 7: launch: CUDA_ERROR_MISALIGNED_ADDRESS", fault.Crash},
		"cudarc":              {`DriverError(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")`, fault.OOM},
	} {
		t.Run(name, func(t *testing.T) {
			if kind, ok := recognize(test.message); kind != test.kind || !ok {
				t.Errorf("%s, %v; want %s", kind, ok, test.kind)
			}
		})
	}
}

func TestClassifyNothing(t *testing.T) {
	for name, message := range map[string]string{
		"empty":                  "",
		"blank lines":            "\n \n",
		"host: the kernel's":     "Out of memory: Killed process 4711 (python3) total-vm:123kB",
		"a record's MemoryError": "ValueError: cannot parse: MemoryError is an exception",
		"sqlite":                 "sqlite3.OperationalError: out of memory",
		"gRPC":                   "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (5 vs. 4)",
		"a quota":                "google.api_core.exceptions.ResourceExhausted: 429 RESOURCE_EXHAUSTED: Quota exceeded for requests",
		"shared memory":          "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 135168, Hardware limit: 101376",
		"no such kernel":         "RuntimeError: CUDA error: no kernel image is available for execution on the device",
		"wrong ordinal":          "RuntimeError: CUDA error: invalid device ordinal",
		"without CUDA":           "AssertionError: Torch not compiled with CUDA enabled",
		"a misaligned column":    "ValueError: misaligned address in row 7",
		"a quoted record":        `ValueError: cannot score {"text": "RuntimeError: CUDA out of memory. GPU is lost"}`,
		"a quoted key":           `KeyError: 'GPU has fallen off the bus'`,
		"a quote with escape":    `ValueError: 'it\'s the GPU is lost again' is too long`,
		"a quote cut off":        `ValueError: cannot score {"text": "GPU is lost and then`,
		"caught before": `Traceback (most recent call last):
  File "a.py", line 2, in f
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.
WARNING trying with half the batch
Traceback (most recent call last):
  File "a.py", line 9, in <module>
KeyError: 'text'`,
		"source lines": `Traceback (most recent call last):
  File "a.py", line 9, in <module>
    check(x)  # else: CUDA out of memory
ValueError: no text`,
	} {
		if kind, ok := recognize(message); ok {
			t.Errorf("%s: %s", name, kind)
		}
	}
}

func FuzzClassify(f *testing.F) {
	for _, group := range examples {
		for _, message := range group.list {
			f.Add(message)
		}
	}
	f.Add("Traceback (most recent call last):\n  x\ny\n\nDuring handling of the above exception\nTraceback (most recent call last):")
	f.Add(`a "b\`)
	f.Fuzz(func(t *testing.T, message string) {
		if kind, ok := recognize(message); ok != (kind != fault.Unknown) {
			t.Errorf("%s, %v", kind, ok)
		}
	})
}
