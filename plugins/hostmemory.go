package plugins

// hostSymptoms are the texts that identify exhausted host memory, from a live process or
// as its last output. They are tried after those of devices, which frameworks often wrap
// in the same exceptions. A line that quotes such a text in the middle is data, so most
// patterns match only at the beginning.
var hostSymptoms = []symptom{
	{"^memoryerror", hostMemory, "Python",
		"MemoryError"},
	{"^numpy*_arraymemoryerror:", hostMemory, "NumPy",
		"numpy._core._exceptions._ArrayMemoryError: Unable to allocate 2.00 PiB for an array with shape (281474976710656,) and data type float64"},
	{"^runtimeerror:*defaultcpuallocator: can't allocate memory", hostMemory, "PyTorch on the host",
		"RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4503599627370496 bytes. Error code 12 (Cannot allocate memory)"},
	{"^runtimeerror:*defaultcpuallocator: not enough memory", hostMemory, "PyTorch on the host, elsewhere",
		"RuntimeError: [enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried to allocate 137438953472 bytes."},
	{"^oserror: [errno 12] cannot allocate memory", hostMemory, "Python, from a system call",
		"OSError: [Errno 12] Cannot allocate memory"},
	{"^runtimeerror: std::bad_alloc", hostMemory, "C++ under Python",
		"RuntimeError: std::bad_alloc"},
	{"^  what():  std::bad_alloc", hostMemory, "C++, as its last output",
		"  what():  std::bad_alloc"},
	{"^fatal error: runtime: out of memory", hostMemory, "Go, as its last output",
		"fatal error: runtime: out of memory"},
	{"^fatal error: runtime: cannot allocate memory", hostMemory, "Go, as its last output",
		"fatal error: runtime: cannot allocate memory"},
	{"^memory allocation of*bytes failed", hostMemory, "Rust, as its last output",
		"memory allocation of 17179869184 bytes failed"},
	{"^*java.lang.outofmemoryerror:", hostMemory, "Java",
		"Exception in thread \"main\" java.lang.OutOfMemoryError: Java heap space"},
	{"^*oom when allocating tensor*device:cpu:", hostMemory, "TensorFlow on the host",
		"ResourceExhaustedError: OOM when allocating tensor with shape[100000,100000] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu"},
}

// isHostMemory reports whether a lowercase line says that host memory ran out.
func isHostMemory(line string) bool {
	for i := range hostSymptoms {
		if matches(line, hostSymptoms[i].pattern) {
			return true
		}
	}
	return false
}
