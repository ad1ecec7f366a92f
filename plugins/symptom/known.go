package symptom

import "github.com/gpurun/gpurun/internal/fault"

// symptoms are texts that identify failures of one kind.
type symptoms struct {
	kind fault.Kind
	sign fault.Sign
	list []symptom
}

// symptom is what some program prints.
type symptom struct {
	// pattern is matched anywhere in a line, ignoring case; * matches anything between
	// two parts, a leading ^ matches the beginning of the line, and | separates spellings.
	pattern string
	// example is a complete message, for the reader and for the test.
	example string
}

// knownSymptoms are tried in order, and the first match counts. Severe failures come before
// milder ones: after a device is lost, calls also fail in other ways. Host memory comes last,
// because frameworks often wrap failures of the device in the same exceptions.
//
// The names and texts of CUDA errors are those that cuGetErrorName and cuGetErrorString
// return in driver 580. The runtime library has the same texts under different names
// (cudaError…).
var knownSymptoms = []symptoms{
	{fault.Unknown, "", []symptom{ // a warning
		// XLA's and TensorFlow's allocator, before it tries another way.
		{"the caller indicates that this is not a failure",
			"W external/xla/xla/tsl/framework/bfc_allocator.cc:310] Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.37GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if more memory were available. CUDA_ERROR_OUT_OF_MEMORY"},
	}},
	{fault.OOM, fault.HostMemory, []symptom{
		// TensorFlow on the host.
		{"^*oom when allocating tensor*device:cpu:",
			"ResourceExhaustedError: OOM when allocating tensor with shape[100000,100000] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu"},
	}},
	// The device is lost or unavailable. The text may be part of a record.
	{fault.Device, fault.Text, []symptom{
		// CUDA 214.
		{"uncorrectable ecc error|cuda_error_ecc_uncorrectable|cudaerroreccuncorrectable",
			"RuntimeError: CUDA error: uncorrectable ECC error encountered"},
		// CUDA 220.
		{"uncorrectable nvlink error|cuda_error_nvlink_uncorrectable|cudaerrornvlinkuncorrectable",
			"torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected during the execution"},
		// CUDA 46: "all CUDA-capable devices are", since CUDA 11 "device(s) is/are".
		{"cuda-capable device*busy or unavailable|cuda_error_device_unavailable|cudaerrordevicesunavailable",
			"RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"},
		// CUDA 100.
		{"no cuda-capable device is detected|cuda_error_no_device|cudaerrornodevice",
			"cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorNoDevice: no CUDA-capable device is detected"},
		// PyTorch.
		{"no cuda gpus are available",
			"RuntimeError: No CUDA GPUs are available"},
		// PyTorch.
		{"found no nvidia driver on your system",
			"RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver"},
		// JAX (jax-ml/jax#28376).
		{"failed_precondition: no visible gpu devices",
			"jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: No visible GPU devices."},
		// CUDA driver 802: no fabric manager.
		{"cuda_error_system_not_ready",
			"INTERNAL: CUDA error: Failed call to cuInit: CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized"},
		// PyTorch, CUDA 802 (pytorch/pytorch#35710).
		{"802*system not yet initialized",
			"RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"},
		// NVML 15.
		{"gpu is lost",
			"pynvml.NVMLError_GpuIsLost: GPU is lost"},
		// The driver, for Xid 79.
		{"gpu has fallen off the bus",
			"NVRM: Xid (PCI:0000:0b:00): 79, pid=1234, GPU has fallen off the bus."},
		// nvidia-smi.
		{"unable to determine the device handle for gpu",
			"Unable to determine the device handle for GPU0000:4F:00.0: Unknown Error"},
	}},
	// CUDA's multi-process service: another process has ended this one's context, or is the reason
	// why it gets none.
	{fault.Crash, fault.Outside, []symptom{
		// CUDA 810.
		{"the mps client has been terminated by the server|cuda_error_mps_client_terminated|cudaerrormpsclientterminated",
			"RuntimeError: CUDA error: the MPS client has been terminated by the server"},
		// CUDA 806.
		{"the remote procedural call between the mps server and the mps client failed|cuda_error_mps_rpc_failure|cudaerrormpsrpcfailure",
			"cuLaunchKernel: CUDA_ERROR_MPS_RPC_FAILURE"},
		// CUDA 807.
		{"mps server is not ready to accept new mps client requests|cuda_error_mps_server_not_ready|cudaerrormpsservernotready",
			"RuntimeError: CUDA error: MPS server is not ready to accept new MPS client requests"},
		// CUDA 805.
		{"mps client failed to connect to the mps control daemon or the mps server|cuda_error_mps_connection_failed|cudaerrormpsconnectionfailed",
			"RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 805: MPS client failed to connect to the MPS control daemon or the MPS server"},
		// CUDA 808.
		{"the hardware resources required to create mps client have been exhausted|cuda_error_mps_max_clients_reached|cudaerrormpsmaxclientsreached",
			"cuCtxCreate: CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"},
		// CUDA 809.
		{"the hardware resources required to support device connections have been exhausted|cuda_error_mps_max_connections_reached|cudaerrormpsmaxconnectionsreached",
			"cuCtxCreate: CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED"},
	}},
	// The device works, but this process's context on it does not: for each of these,
	// CUDA's documentation says that the process must be restarted.
	{fault.Crash, fault.Context, []symptom{
		// CUDA 700.
		{"an illegal memory access was encountered|cuda_error_illegal_address|cudaerrorillegaladdress",
			"CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=node7 ; expr=cudaStreamSynchronize(stream);"},
		// CUDA 710.
		{"device-side assert triggered|cuda_error_assert",
			"torch.AcceleratorError: CUDA error: device-side assert triggered"},
		// CUDA 719.
		{"unspecified launch failure|cuda_error_launch_failed|cudaerrorlaunchfailure",
			"RuntimeError: CUDA error: unspecified launch failure"},
		// CUDA 702.
		{"the launch timed out and was terminated|cuda_error_launch_timeout",
			"RuntimeError: CUDA error: the launch timed out and was terminated"},
		// CUDA 716.
		{"cuda*misaligned address|cuda_error_misaligned_address",
			"RuntimeError: CUDA error: misaligned address"},
		// CUDA 715.
		{"cuda*an illegal instruction was encountered|cuda_error_illegal_instruction",
			"RuntimeError: CUDA error: an illegal instruction was encountered"},
		// CUDA 714.
		{"cuda*hardware stack error|cuda_error_hardware_stack_error",
			"RuntimeError: CUDA error: hardware stack error"},
		// CUDA 717.
		{"operation not supported on global/shared address space|cuda_error_invalid_address_space",
			"RuntimeError: CUDA error: operation not supported on global/shared address space"},
		// CUDA 718.
		{"cuda*invalid program counter|cuda_error_invalid_pc",
			"RuntimeError: CUDA error: invalid program counter"},
		// CUDA 226: an error contained to this process.
		{"invalid access of peer gpu memory over nvlink or a hardware error|cuda_error_contained",
			"RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"},
		// CUDA driver 709.
		{"cuda_error_context_is_destroyed",
			"cuLaunchKernel: CUDA_ERROR_CONTEXT_IS_DESTROYED"},
		// CUDA 999; if the device is lost, the next process gets the error that says so.
		{"cuda error: unknown error|cuda_error_unknown|cudaerrorunknown",
			"RuntimeError: CUDA error: unknown error"},
		// cuBLAS: one of its kernels failed on the device.
		{"cublas_status_execution_failed",
			"RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb, m, n, k)`"},
		// cuDNN: one of its kernels failed on the device.
		{"cudnn_status_execution_failed",
			"RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"},
	}},
	// Out of device memory: a smaller batch may fit.
	{fault.OOM, "", []symptom{
		// PyTorch.
		{"cuda out of memory",
			"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 3.12 MiB is free."},
		// PyTorch on ROCm.
		{"hip out of memory",
			"torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 MiB."},
		// PyTorch since 2.5.
		{"torch.outofmemoryerror",
			"torch.OutOfMemoryError: Allocation on device"},
		// PyTorch since 1.13.
		{"torch.cuda.outofmemoryerror",
			"torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory."},
		// CUDA 2, in PyTorch and llama.cpp.
		{"cuda error: out of memory",
			"RuntimeError: CUDA error: out of memory"},
		// PyTorch before 1.5.
		{"cuda runtime error (2)",
			"RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCStorage.cu:58"},
		// CTranslate2 (SYSTRAN/faster-whisper#442).
		{"cuda failed with error out of memory",
			"RuntimeError: CUDA failed with error out of memory"},
		// CUDA driver 2.
		{"cuda_error_out_of_memory|cudaerrormemoryallocation",
			"failed to allocate 17.79G (19104890880 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"},
		// RMM's pool (rapidsai/rmm#1421).
		{"out_of_memory: rmm failure",
			"MemoryError: std::bad_alloc: out_of_memory: RMM failure at:pool_memory_resource.hpp:196: Maximum pool size exceeded"},
		// cuBLAS, cuDNN, cuSPARSE, cuSOLVER.
		{"_status_alloc_failed",
			"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"},
		// cuFFT.
		{"cufft_alloc_failed",
			"cupy.cuda.cufft.CuFFTError: CUFFT_ALLOC_FAILED"},
		// CuPy.
		{"cupy*memory.outofmemoryerror",
			"cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 281,474,976,710,656 bytes (allocated so far: 0 bytes)."},
		// CuPy's text without its class.
		{"out of memory allocating*bytes (allocated so far",
			"Out of memory allocating 25,600,000 bytes (allocated so far: 3,635,267,072 bytes)."},
		// JAX, XLA.
		{"resource_exhausted: out of memory",
			"jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4.00TiB with allocator GPU_0_bfc on device 0. [tf-allocator-allocation-error='']"},
		// XLA before 2022.
		{"resource exhausted: out of memory",
			"RuntimeError: Resource exhausted: Out of memory while trying to allocate 5520758552 bytes."},
		// XLA (google-deepmind/jax_privacy#10).
		{"failed to allocate request for*on device ordinal",
			"RESOURCE_EXHAUSTED: Failed to allocate request for 2.99GiB (3206250496B) on device ordinal 0"},
		// TensorFlow.
		{"oom when allocating tensor",
			"ResourceExhaustedError: OOM when allocating tensor with shape[64,2016,9,9] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"},
		// Paddle.
		{"out of memory error on gpu",
			"Out of memory error on GPU 0. Cannot allocate 98.000244MB memory on GPU 0, 6.000000GB memory has been allocated and available memory is only 0.000000B."},
		// Paddle.
		{"cuda error(2)",
			"OSError: (External) CUDA error(2), out of memory."},
		// ONNX Runtime.
		{"cuda failure 2:",
			"[ONNXRuntimeError] : 1 : FAIL : CUDA failure 2: out of memory ; GPU=0 ; hostname=node7 ; expr=cudaMalloc((void**)&p, size);"},
		// ONNX Runtime (microsoft/onnxruntime#9939).
		{"bfcarena::allocaterawinternal*failed to allocate memory",
			"RUNTIME_EXCEPTION : Non-zero status code returned while running FusedMatMul node. Name:'MatMul_92' Status Message: bfc_arena.cc:331 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size 8388608000"},
		// llama.cpp, MXNet.
		{"cudamalloc failed: out of memory",
			"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 144.00 MiB on device 4: cudaMalloc failed: out of memory"},
		// llama.cpp.
		{"failed to allocate cuda*buffer of size",
			"ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 150995968"},
		// TensorRT.
		{"error code 2: outofmemory",
			"[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: OutOfMemory (no further information)"},
		// vLLM (vllm-project/vllm#2248).
		{"no available memory for the cache blocks",
			"ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."},
		// vLLM (vllm-project/vllm#20305).
		{"free memory on device*less than desired gpu memory utilization",
			"ValueError: Free memory on device (59.32/79.15 GiB) on startup is less than desired GPU memory utilization (0.9, 71.24 GiB)."},
	}},
	// Out of host memory, from a live process or as its last output. A line that quotes such
	// a text in the middle is data, so most patterns match only at the beginning.
	{fault.OOM, fault.HostMemory, []symptom{
		// Python.
		{"^memoryerror",
			"MemoryError"},
		// NumPy.
		{"^numpy*_arraymemoryerror:",
			"numpy._core._exceptions._ArrayMemoryError: Unable to allocate 2.00 PiB for an array with shape (281474976710656,) and data type float64"},
		// PyTorch on the host.
		{"^runtimeerror:*defaultcpuallocator: can't allocate memory",
			"RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4503599627370496 bytes. Error code 12 (Cannot allocate memory)"},
		// PyTorch on the host, elsewhere.
		{"^runtimeerror:*defaultcpuallocator: not enough memory",
			"RuntimeError: [enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried to allocate 137438953472 bytes."},
		// Python, from a system call.
		{"^oserror: [errno 12] cannot allocate memory",
			"OSError: [Errno 12] Cannot allocate memory"},
		// C++ under Python.
		{"^runtimeerror: std::bad_alloc",
			"RuntimeError: std::bad_alloc"},
		// C++, as its last output.
		{"^  what():  std::bad_alloc",
			"  what():  std::bad_alloc"},
		// Go, as its last output.
		{"^fatal error: runtime: out of memory",
			"fatal error: runtime: out of memory"},
		// Go, as its last output.
		{"^fatal error: runtime: cannot allocate memory",
			"fatal error: runtime: cannot allocate memory"},
		// Rust, as its last output.
		{"^memory allocation of*bytes failed",
			"memory allocation of 17179869184 bytes failed"},
		// Java.
		{"^*java.lang.outofmemoryerror:",
			"Exception in thread \"main\" java.lang.OutOfMemoryError: Java heap space"},
	}},
}
