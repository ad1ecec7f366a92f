package symptom

import "github.com/gpurun/gpurun/internal/fault"

// symptoms are patterns of texts that identify failures of one kind. A pattern is matched anywhere in a
// line, ignoring case; * matches anything between two parts, a leading ^ matches the beginning of the
// line, and | separates spellings. The test has an example for each.
type symptoms struct {
	kind     fault.Kind
	sign     fault.Sign
	patterns []string
}

// knownSymptoms are tried in order, and the first match counts. Severe failures come before
// milder ones: after a device is lost, calls also fail in other ways. Host memory comes last,
// because frameworks often wrap failures of the device in the same exceptions.
//
// The names and texts of CUDA errors are those that cuGetErrorName and cuGetErrorString
// return in driver 580. The runtime library has the same texts under different names
// (cudaError…).
var knownSymptoms = []symptoms{
	{fault.Unknown, "", []string{ // a warning
		// XLA's and TensorFlow's allocator, before it tries another way.
		"the caller indicates that this is not a failure",
	}},
	{fault.OOM, fault.HostMemory, []string{
		// TensorFlow on the host.
		"^*oom when allocating tensor*device:cpu:",
	}},
	// The device is lost or unavailable. The text may be part of a record.
	{fault.Device, fault.Text, []string{
		// CUDA 214.
		"uncorrectable ecc error|cuda_error_ecc_uncorrectable|cudaerroreccuncorrectable",
		// CUDA 220.
		"uncorrectable nvlink error|cuda_error_nvlink_uncorrectable|cudaerrornvlinkuncorrectable",
		// CUDA 46: "all CUDA-capable devices are", since CUDA 11 "device(s) is/are".
		"cuda-capable device*busy or unavailable|cuda_error_device_unavailable|cudaerrordevicesunavailable",
		// CUDA 100.
		"no cuda-capable device is detected|cuda_error_no_device|cudaerrornodevice",
		// PyTorch.
		"no cuda gpus are available",
		// PyTorch.
		"found no nvidia driver on your system",
		// JAX (jax-ml/jax#28376).
		"failed_precondition: no visible gpu devices",
		// CUDA driver 802: no fabric manager.
		"cuda_error_system_not_ready",
		// PyTorch, CUDA 802 (pytorch/pytorch#35710).
		"802*system not yet initialized",
		// NVML 15.
		"gpu is lost",
		// The driver, for Xid 79.
		"gpu has fallen off the bus",
		// nvidia-smi.
		"unable to determine the device handle for gpu",
	}},
	// CUDA's multi-process service: another process has ended this one's context, or is the reason
	// why it gets none.
	{fault.Crash, fault.Outside, []string{
		// CUDA 810.
		"the mps client has been terminated by the server|cuda_error_mps_client_terminated|cudaerrormpsclientterminated",
		// CUDA 806.
		"the remote procedural call between the mps server and the mps client failed|cuda_error_mps_rpc_failure|cudaerrormpsrpcfailure",
		// CUDA 807.
		"mps server is not ready to accept new mps client requests|cuda_error_mps_server_not_ready|cudaerrormpsservernotready",
		// CUDA 805.
		"mps client failed to connect to the mps control daemon or the mps server|cuda_error_mps_connection_failed|cudaerrormpsconnectionfailed",
		// CUDA 808.
		"the hardware resources required to create mps client have been exhausted|cuda_error_mps_max_clients_reached|cudaerrormpsmaxclientsreached",
		// CUDA 809.
		"the hardware resources required to support device connections have been exhausted|cuda_error_mps_max_connections_reached|cudaerrormpsmaxconnectionsreached",
	}},
	// The device works, but this process's context on it does not: for each of these,
	// CUDA's documentation says that the process must be restarted.
	{fault.Crash, fault.Context, []string{
		// CUDA 700.
		"an illegal memory access was encountered|cuda_error_illegal_address|cudaerrorillegaladdress",
		// CUDA 710.
		"device-side assert triggered|cuda_error_assert",
		// CUDA 719.
		"unspecified launch failure|cuda_error_launch_failed|cudaerrorlaunchfailure",
		// CUDA 702.
		"the launch timed out and was terminated|cuda_error_launch_timeout",
		// CUDA 716.
		"cuda*misaligned address|cuda_error_misaligned_address",
		// CUDA 715.
		"cuda*an illegal instruction was encountered|cuda_error_illegal_instruction",
		// CUDA 714.
		"cuda*hardware stack error|cuda_error_hardware_stack_error",
		// CUDA 717.
		"operation not supported on global/shared address space|cuda_error_invalid_address_space",
		// CUDA 718.
		"cuda*invalid program counter|cuda_error_invalid_pc",
		// CUDA 226: an error contained to this process.
		"invalid access of peer gpu memory over nvlink or a hardware error|cuda_error_contained",
		// CUDA driver 709.
		"cuda_error_context_is_destroyed",
		// CUDA 999; if the device is lost, the next process gets the error that says so.
		"cuda error: unknown error|cuda_error_unknown|cudaerrorunknown",
		// cuBLAS: one of its kernels failed on the device.
		"cublas_status_execution_failed",
		// cuDNN: one of its kernels failed on the device.
		"cudnn_status_execution_failed",
	}},
	// Out of device memory: a smaller batch may fit.
	{fault.OOM, "", []string{
		// PyTorch.
		"cuda out of memory",
		// PyTorch on ROCm.
		"hip out of memory",
		// PyTorch since 2.5.
		"torch.outofmemoryerror",
		// PyTorch since 1.13.
		"torch.cuda.outofmemoryerror",
		// CUDA 2, in PyTorch and llama.cpp.
		"cuda error: out of memory",
		// PyTorch before 1.5.
		"cuda runtime error (2)",
		// CTranslate2 (SYSTRAN/faster-whisper#442).
		"cuda failed with error out of memory",
		// CUDA driver 2.
		"cuda_error_out_of_memory|cudaerrormemoryallocation",
		// RMM's pool (rapidsai/rmm#1421).
		"out_of_memory: rmm failure",
		// cuBLAS, cuDNN, cuSPARSE, cuSOLVER.
		"_status_alloc_failed",
		// cuFFT.
		"cufft_alloc_failed",
		// CuPy.
		"cupy*memory.outofmemoryerror",
		// CuPy's text without its class.
		"out of memory allocating*bytes (allocated so far",
		// JAX, XLA.
		"resource_exhausted: out of memory",
		// XLA before 2022.
		"resource exhausted: out of memory",
		// XLA (google-deepmind/jax_privacy#10).
		"failed to allocate request for*on device ordinal",
		// TensorFlow.
		"oom when allocating tensor",
		// Paddle.
		"out of memory error on gpu",
		// Paddle.
		"cuda error(2)",
		// ONNX Runtime.
		"cuda failure 2:",
		// ONNX Runtime (microsoft/onnxruntime#9939).
		"bfcarena::allocaterawinternal*failed to allocate memory",
		// llama.cpp, MXNet.
		"cudamalloc failed: out of memory",
		// llama.cpp.
		"failed to allocate cuda*buffer of size",
		// TensorRT.
		"error code 2: outofmemory",
		// vLLM (vllm-project/vllm#2248).
		"no available memory for the cache blocks",
		// vLLM (vllm-project/vllm#20305).
		"free memory on device*less than desired gpu memory utilization",
	}},
	// Out of host memory, from a live process or as its last output. A line that quotes such
	// a text in the middle is data, so most patterns match only at the beginning.
	{fault.OOM, fault.HostMemory, []string{
		// Python.
		"^memoryerror",
		// NumPy.
		"^numpy*_arraymemoryerror:",
		// PyTorch on the host.
		"^runtimeerror:*defaultcpuallocator: can't allocate memory",
		// PyTorch on the host, elsewhere.
		"^runtimeerror:*defaultcpuallocator: not enough memory",
		// Python, from a system call.
		"^oserror: [errno 12] cannot allocate memory",
		// C++ under Python.
		"^runtimeerror: std::bad_alloc",
		// C++, as its last output.
		"^  what():  std::bad_alloc",
		// Go, as its last output.
		"^fatal error: runtime: out of memory",
		// Go, as its last output.
		"^fatal error: runtime: cannot allocate memory",
		// Rust, as its last output.
		"^memory allocation of*bytes failed",
		// Java.
		"^*java.lang.outofmemoryerror:",
	}},
}
