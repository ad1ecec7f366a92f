//go:build cgo && linux

package gpu

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// errorTexts are the messages for NVML's errors. The library's own texts are not used:
// go-nvml does not copy them, so they point into memory that Shutdown unmaps, and
// requesting one after Shutdown ends the process.
var errorTexts = map[nvml.Return]string{
	nvml.ERROR_UNINITIALIZED:             "NVML is not initialized",
	nvml.ERROR_INVALID_ARGUMENT:          "invalid argument",
	nvml.ERROR_NOT_SUPPORTED:             "not supported",
	nvml.ERROR_NO_PERMISSION:             "insufficient permissions",
	nvml.ERROR_ALREADY_INITIALIZED:       "already initialized",
	nvml.ERROR_NOT_FOUND:                 "not found",
	nvml.ERROR_INSUFFICIENT_SIZE:         "insufficient size",
	nvml.ERROR_INSUFFICIENT_POWER:        "insufficient external power",
	nvml.ERROR_DRIVER_NOT_LOADED:         "driver not loaded",
	nvml.ERROR_TIMEOUT:                   "timeout",
	nvml.ERROR_IRQ_ISSUE:                 "interrupt request issue",
	nvml.ERROR_LIBRARY_NOT_FOUND:         "driver library not found",
	nvml.ERROR_FUNCTION_NOT_FOUND:        "function not found in the driver library",
	nvml.ERROR_CORRUPTED_INFOROM:         "corrupted infoROM",
	nvml.ERROR_OPERATING_SYSTEM:          "GPU access blocked by the operating system",
	nvml.ERROR_LIB_RM_VERSION_MISMATCH:   "driver and library versions differ",
	nvml.ERROR_IN_USE:                    "in use by another client",
	nvml.ERROR_MEMORY:                    "insufficient memory",
	nvml.ERROR_NO_DATA:                   "no data",
	nvml.ERROR_VGPU_ECC_NOT_SUPPORTED:    "vGPU is not supported with ECC enabled",
	nvml.ERROR_INSUFFICIENT_RESOURCES:    "insufficient resources",
	nvml.ERROR_FREQ_NOT_SUPPORTED:        "frequency not supported",
	nvml.ERROR_ARGUMENT_VERSION_MISMATCH: "argument version mismatch",
	nvml.ERROR_DEPRECATED:                "deprecated",
	nvml.ERROR_UNKNOWN:                   "unknown error",
}

// asError is the error of a failed call. Callers distinguish only ErrLost.
func asError(ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_GPU_IS_LOST:
		return ErrLost
	case nvml.ERROR_RESET_REQUIRED:
		return fmt.Errorf("%w: it needs a reset", ErrLost)
	}
	if text, known := errorTexts[ret]; known {
		return errors.New(text)
	}
	return fmt.Errorf("NVML error %d", int(ret))
}

// result returns what a call of the library returned, with its error.
func result[T any](value T, ret nvml.Return) (T, error) { return value, asError(ret) }

// initError is the error of a failed Init, with what to do about it.
func initError(ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return errors.New("the NVIDIA driver is installed but not loaded (after a kernel update, or because the module was removed: check dmesg, run modprobe nvidia)")
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return errors.New("the NVIDIA driver and its library have different versions (the driver was updated: reboot, or reload its module)")
	case nvml.ERROR_NO_PERMISSION:
		return errors.New("no permission to access the NVIDIA driver (check the permissions of /dev/nvidia*)")
	case nvml.ERROR_GPU_IS_LOST:
		return ErrLost
	case nvml.ERROR_NO_DATA, nvml.ERROR_GPU_NOT_FOUND:
		return errors.New("the NVIDIA driver finds no GPU")
	default:
		return fmt.Errorf("nvmlInit failed with code %d", int(ret))
	}
}
