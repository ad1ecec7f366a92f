package plugins

// AddProgram makes the test binary able to run as a kernel program; see kernelVariable.
func AddProgram(name string, main func()) { programs[name] = main }

// KernelVariable is kernelVariable.
const KernelVariable = kernelVariable
