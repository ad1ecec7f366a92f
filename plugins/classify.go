package plugins

import (
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// Kind is a kind of failure. Kernels choose one with [OutOfMemory] and [DeviceLost].
type Kind = fault.Kind

// Sign is the evidence for a kind of failure.
type Sign = fault.Sign

// Diagnose determines the kind of an error from its text, and the evidence for it:
// [fault.OOM] if device memory ran out, with [fault.HostMemory] if host memory did;
// [fault.Device] if the device is lost, always with [fault.Text], because the text may be
// part of a record; [fault.Crash] if the device works but the process can no longer use
// it; [fault.Unknown] if it does not recognize the text.
//
// Kernels need not call it: gpurun applies it to every unclassified error. The message
// may have many lines; later lines take precedence. In Python tracebacks, Diagnose
// considers only the exceptions and not the source lines, and only the last chain of
// exceptions, so that an error that was caught and printed earlier is not mistaken for
// the cause. It ignores quoted text, which is data: a record that mentions a lost GPU
// must not cost one.
func Diagnose(message string) (Kind, Sign) {
	for _, line := range causeLines(message) {
		s := findSymptom(line)
		switch {
		case s != nil && s.kind == fault.Device:
			return s.kind, fault.Text
		case s != nil && s.kind != notOurs:
			return s.kind, ""
		case isHostMemory(line):
			return fault.OOM, fault.HostMemory
		}
	}
	return fault.Unknown, ""
}

// notOurs marks patterns for lines that resemble a symptom but are not one.
const notOurs = fault.Unknown

// hostMemory is the kind of all hostSymptoms.
const hostMemory = fault.OOM

// symptom is a text that identifies a failure.
type symptom struct {
	// pattern is matched anywhere in a line, ignoring case; * matches anything between
	// two parts, and a leading ^ matches the beginning of the line.
	pattern string
	kind    fault.Kind
	// source is what prints the text, and where it was reported.
	source string
	// example is a complete message, for the reader and for the test.
	example string
}

// symptoms are tried in order, and the first match counts. Severe failures come before
// milder ones: after a device is lost, calls also fail in other ways.
//
// The names and texts of CUDA errors are those that cuGetErrorName and cuGetErrorString
// return in driver 580. The runtime library has the same texts under different names
// (cudaError…).
var symptoms = []symptom{
	// Warnings, and host memory: not the device's fault.
	{"the caller indicates that this is not a failure", notOurs, "XLA's and TensorFlow's allocator, before it tries another way",
		"W external/xla/xla/tsl/framework/bfc_allocator.cc:310] Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.37GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if more memory were available. CUDA_ERROR_OUT_OF_MEMORY"},
	{"oom when allocating tensor*device:cpu:", notOurs, "TensorFlow, on the host",
		"ResourceExhaustedError: OOM when allocating tensor with shape[100000,100000] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu"},

	// The device is lost or unavailable.
	{"uncorrectable ecc error", fault.Device, "CUDA 214",
		"RuntimeError: CUDA error: uncorrectable ECC error encountered"},
	{"cuda_error_ecc_uncorrectable", fault.Device, "CUDA driver 214",
		"cuCtxSynchronize: CUDA_ERROR_ECC_UNCORRECTABLE"},
	{"cudaerroreccuncorrectable", fault.Device, "CUDA runtime 214",
		"thrust::system::system_error: cudaErrorECCUncorrectable"},
	{"uncorrectable nvlink error", fault.Device, "CUDA 220",
		"torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected during the execution"},
	{"cuda_error_nvlink_uncorrectable", fault.Device, "CUDA driver 220",
		"cuStreamSynchronize: CUDA_ERROR_NVLINK_UNCORRECTABLE"},
	{"cudaerrornvlinkuncorrectable", fault.Device, "CUDA runtime 220",
		"CUDARuntimeError: cudaErrorNvlinkUncorrectable"},
	{"cuda-capable device*busy or unavailable", fault.Device, "CUDA 46: \"all CUDA-capable devices are\", since CUDA 11 \"device(s) is/are\"",
		"RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"},
	{"cuda_error_device_unavailable", fault.Device, "CUDA driver 46",
		"cuCtxCreate: CUDA_ERROR_DEVICE_UNAVAILABLE"},
	{"cudaerrordevicesunavailable", fault.Device, "CUDA runtime 46",
		"CUDARuntimeError: cudaErrorDevicesUnavailable"},
	{"no cuda-capable device is detected", fault.Device, "CUDA 100",
		"cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorNoDevice: no CUDA-capable device is detected"},
	{"cuda_error_no_device", fault.Device, "CUDA driver 100",
		"cuInit: CUDA_ERROR_NO_DEVICE"},
	{"cudaerrornodevice", fault.Device, "CUDA runtime 100",
		"cudaGetDeviceCount: cudaErrorNoDevice"},
	{"no cuda gpus are available", fault.Device, "PyTorch",
		"RuntimeError: No CUDA GPUs are available"},
	{"found no nvidia driver on your system", fault.Device, "PyTorch",
		"RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver"},
	{"failed_precondition: no visible gpu devices", fault.Device, "JAX (jax-ml/jax#28376)",
		"jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: No visible GPU devices."},
	{"cuda_error_system_not_ready", fault.Device, "CUDA driver 802: no fabric manager",
		"INTERNAL: CUDA error: Failed call to cuInit: CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized"},
	{"802*system not yet initialized", fault.Device, "PyTorch, CUDA 802 (pytorch/pytorch#35710)",
		"RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"},
	{"gpu is lost", fault.Device, "NVML 15",
		"pynvml.NVMLError_GpuIsLost: GPU is lost"},
	{"gpu has fallen off the bus", fault.Device, "the driver, for Xid 79",
		"NVRM: Xid (PCI:0000:0b:00): 79, pid=1234, GPU has fallen off the bus."},
	{"unable to determine the device handle for gpu", fault.Device, "nvidia-smi",
		"Unable to determine the device handle for GPU0000:4F:00.0: Unknown Error"},

	// The device works, but this process's context on it does not: for each of these,
	// CUDA's documentation says that the process must be restarted.
	{"an illegal memory access was encountered", fault.Crash, "CUDA 700",
		"CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=node7 ; expr=cudaStreamSynchronize(stream);"},
	{"cuda_error_illegal_address", fault.Crash, "CUDA driver 700",
		"numba.cuda.cudadrv.driver.CudaAPIError: [700] Call to cuMemcpyDtoH results in CUDA_ERROR_ILLEGAL_ADDRESS"},
	{"cudaerrorillegaladdress", fault.Crash, "CUDA runtime 700",
		"CUDARuntimeError: cudaErrorIllegalAddress"},
	{"device-side assert triggered", fault.Crash, "CUDA 710",
		"torch.AcceleratorError: CUDA error: device-side assert triggered"},
	{"cuda_error_assert", fault.Crash, "CUDA driver 710",
		"cuStreamSynchronize: CUDA_ERROR_ASSERT"},
	{"unspecified launch failure", fault.Crash, "CUDA 719",
		"RuntimeError: CUDA error: unspecified launch failure"},
	{"cuda_error_launch_failed", fault.Crash, "CUDA driver 719",
		"cuCtxSynchronize: CUDA_ERROR_LAUNCH_FAILED"},
	{"cudaerrorlaunchfailure", fault.Crash, "CUDA runtime 719",
		"cudaDeviceSynchronize: cudaErrorLaunchFailure"},
	{"the launch timed out and was terminated", fault.Crash, "CUDA 702",
		"RuntimeError: CUDA error: the launch timed out and was terminated"},
	{"cuda_error_launch_timeout", fault.Crash, "CUDA driver 702",
		"cuCtxSynchronize: CUDA_ERROR_LAUNCH_TIMEOUT"},
	{"cuda*misaligned address", fault.Crash, "CUDA 716",
		"RuntimeError: CUDA error: misaligned address"},
	{"cuda_error_misaligned_address", fault.Crash, "CUDA driver 716",
		"cuCtxSynchronize: CUDA_ERROR_MISALIGNED_ADDRESS"},
	{"cuda*an illegal instruction was encountered", fault.Crash, "CUDA 715",
		"RuntimeError: CUDA error: an illegal instruction was encountered"},
	{"cuda_error_illegal_instruction", fault.Crash, "CUDA driver 715",
		"cuCtxSynchronize: CUDA_ERROR_ILLEGAL_INSTRUCTION"},
	{"cuda*hardware stack error", fault.Crash, "CUDA 714",
		"RuntimeError: CUDA error: hardware stack error"},
	{"cuda_error_hardware_stack_error", fault.Crash, "CUDA driver 714",
		"cuCtxSynchronize: CUDA_ERROR_HARDWARE_STACK_ERROR"},
	{"operation not supported on global/shared address space", fault.Crash, "CUDA 717",
		"RuntimeError: CUDA error: operation not supported on global/shared address space"},
	{"cuda_error_invalid_address_space", fault.Crash, "CUDA driver 717",
		"cuCtxSynchronize: CUDA_ERROR_INVALID_ADDRESS_SPACE"},
	{"cuda*invalid program counter", fault.Crash, "CUDA 718",
		"RuntimeError: CUDA error: invalid program counter"},
	{"cuda_error_invalid_pc", fault.Crash, "CUDA driver 718",
		"cuCtxSynchronize: CUDA_ERROR_INVALID_PC"},
	{"invalid access of peer gpu memory over nvlink or a hardware error", fault.Crash, "CUDA 226: an error contained to this process",
		"RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"},
	{"cuda_error_contained", fault.Crash, "CUDA driver 226",
		"cuCtxSynchronize: CUDA_ERROR_CONTAINED"},
	{"cuda_error_context_is_destroyed", fault.Crash, "CUDA driver 709",
		"cuLaunchKernel: CUDA_ERROR_CONTEXT_IS_DESTROYED"},
	{"cuda_error_mps_client_terminated", fault.Crash, "CUDA driver 810",
		"cuStreamSynchronize: CUDA_ERROR_MPS_CLIENT_TERMINATED"},
	{"cuda_error_mps_rpc_failure", fault.Crash, "CUDA driver 806",
		"cuLaunchKernel: CUDA_ERROR_MPS_RPC_FAILURE"},
	{"cuda error: unknown error", fault.Crash, "CUDA 999; if the device is lost, the next process gets the error that says so",
		"RuntimeError: CUDA error: unknown error"},
	{"cuda_error_unknown", fault.Crash, "CUDA driver 999",
		"failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_UNKNOWN: unknown error"},
	{"cudaerrorunknown", fault.Crash, "CUDA runtime 999",
		"CUDARuntimeError: cudaErrorUnknown"},
	{"cublas_status_execution_failed", fault.Crash, "cuBLAS: one of its kernels failed on the device",
		"RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb, m, n, k)`"},
	{"cudnn_status_execution_failed", fault.Crash, "cuDNN: one of its kernels failed on the device",
		"RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"},

	// Out of device memory: a smaller batch may fit.
	{"cuda out of memory", fault.OOM, "PyTorch",
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 3.12 MiB is free."},
	{"hip out of memory", fault.OOM, "PyTorch on ROCm",
		"torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 MiB."},
	{"torch.outofmemoryerror", fault.OOM, "PyTorch since 2.5",
		"torch.OutOfMemoryError: Allocation on device"},
	{"torch.cuda.outofmemoryerror", fault.OOM, "PyTorch since 1.13",
		"torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory."},
	{"cuda error: out of memory", fault.OOM, "CUDA 2, in PyTorch and llama.cpp",
		"RuntimeError: CUDA error: out of memory"},
	{"cuda runtime error (2)", fault.OOM, "PyTorch before 1.5",
		"RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCStorage.cu:58"},
	{"cuda failed with error out of memory", fault.OOM, "CTranslate2 (SYSTRAN/faster-whisper#442)",
		"RuntimeError: CUDA failed with error out of memory"},
	{"cuda_error_out_of_memory", fault.OOM, "CUDA driver 2",
		"failed to allocate 17.79G (19104890880 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"},
	{"cudaerrormemoryallocation", fault.OOM, "CUDA runtime 2; also RMM and Paddle",
		"MemoryError: std::bad_alloc: CUDA error at: cuda_memory_resource.hpp68: cudaErrorMemoryAllocation out of memory"},
	{"out_of_memory: rmm failure", fault.OOM, "RMM's pool (rapidsai/rmm#1421)",
		"MemoryError: std::bad_alloc: out_of_memory: RMM failure at:pool_memory_resource.hpp:196: Maximum pool size exceeded"},
	{"_status_alloc_failed", fault.OOM, "cuBLAS, cuDNN, cuSPARSE, cuSOLVER",
		"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"},
	{"cufft_alloc_failed", fault.OOM, "cuFFT",
		"cupy.cuda.cufft.CuFFTError: CUFFT_ALLOC_FAILED"},
	{"cupy*memory.outofmemoryerror", fault.OOM, "CuPy",
		"cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 281,474,976,710,656 bytes (allocated so far: 0 bytes)."},
	{"out of memory allocating*bytes (allocated so far", fault.OOM, "CuPy's text without its class",
		"Out of memory allocating 25,600,000 bytes (allocated so far: 3,635,267,072 bytes)."},
	{"resource_exhausted: out of memory", fault.OOM, "JAX, XLA",
		"jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4.00TiB with allocator GPU_0_bfc on device 0. [tf-allocator-allocation-error='']"},
	{"resource exhausted: out of memory", fault.OOM, "XLA before 2022",
		"RuntimeError: Resource exhausted: Out of memory while trying to allocate 5520758552 bytes."},
	{"failed to allocate request for*on device ordinal", fault.OOM, "XLA (google-deepmind/jax_privacy#10)",
		"RESOURCE_EXHAUSTED: Failed to allocate request for 2.99GiB (3206250496B) on device ordinal 0"},
	{"oom when allocating tensor", fault.OOM, "TensorFlow",
		"ResourceExhaustedError: OOM when allocating tensor with shape[64,2016,9,9] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"},
	{"out of memory error on gpu", fault.OOM, "Paddle",
		"Out of memory error on GPU 0. Cannot allocate 98.000244MB memory on GPU 0, 6.000000GB memory has been allocated and available memory is only 0.000000B."},
	{"cuda error(2)", fault.OOM, "Paddle",
		"OSError: (External) CUDA error(2), out of memory."},
	{"cuda failure 2:", fault.OOM, "ONNX Runtime",
		"[ONNXRuntimeError] : 1 : FAIL : CUDA failure 2: out of memory ; GPU=0 ; hostname=node7 ; expr=cudaMalloc((void**)&p, size);"},
	{"bfcarena::allocaterawinternal*failed to allocate memory", fault.OOM, "ONNX Runtime (microsoft/onnxruntime#9939)",
		"RUNTIME_EXCEPTION : Non-zero status code returned while running FusedMatMul node. Name:'MatMul_92' Status Message: bfc_arena.cc:331 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size 8388608000"},
	{"cudamalloc failed: out of memory", fault.OOM, "llama.cpp, MXNet",
		"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 144.00 MiB on device 4: cudaMalloc failed: out of memory"},
	{"failed to allocate cuda*buffer of size", fault.OOM, "llama.cpp",
		"ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 150995968"},
	{"error code 2: outofmemory", fault.OOM, "TensorRT",
		"[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: OutOfMemory (no further information)"},
	{"no available memory for the cache blocks", fault.OOM, "vLLM (vllm-project/vllm#2248)",
		"ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."},
	{"free memory on device*less than desired gpu memory utilization", fault.OOM, "vLLM (vllm-project/vllm#20305)",
		"ValueError: Free memory on device (59.32/79.15 GiB) on startup is less than desired GPU memory utilization (0.9, 71.24 GiB)."},
}

// findSymptom returns the first symptom that matches a lowercase line; nil if none does.
func findSymptom(line string) *symptom {
	for i := range symptoms {
		if matches(line, symptoms[i].pattern) {
			return &symptoms[i]
		}
	}
	return nil
}

func matches(line, pattern string) bool {
	pattern, atStart := strings.CutPrefix(pattern, "^")
	for part := range strings.SplitSeq(pattern, "*") {
		i := strings.Index(line, part)
		if i < 0 || atStart && i > 0 {
			return false
		}
		line, atStart = line[i+len(part):], false
	}
	return true
}

// classify gives an unclassified err the kind that its text indicates, or else kind. On
// a CPU device no text can mean a lost GPU.
func classify(kind fault.Kind, err error, onCPU bool) error {
	e := fault.As(err)
	if err == nil || e != nil && e.Kind != fault.Unknown {
		return err
	}
	detail, step := "", ""
	if e != nil {
		detail, step = e.Detail, e.Step
	}
	kind, sign := kindByText(kind, err.Error(), detail, onCPU)
	return fault.KernelException.Of(kind, "%w", err).WithDetail(detail).InStep(step).Signed(sign)
}

func kindByText(kind fault.Kind, message, detail string, onCPU bool) (fault.Kind, fault.Sign) {
	found, sign := Diagnose(message)
	if found == fault.Unknown {
		found, sign = Diagnose(detail)
	}
	if found == fault.Unknown || found == fault.Device && onCPU {
		return kind, ""
	}
	return found, sign
}
