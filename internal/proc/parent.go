package proc

// ParentVariable is the environment variable with the process ID of a parent that this process must not
// outlive.
const ParentVariable = "GPURUN_PARENT"
