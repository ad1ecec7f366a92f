package cuda

import (
	"errors"
	"strings"
	"testing"
	"unsafe"
)

// named returns a driver that knows one error.
func named() *Driver {
	text := func(known string) func(Code, **byte) Code {
		return func(code Code, to **byte) Code {
			if code != OutOfMemory {
				return 1
			}
			*to = unsafe.SliceData([]byte(known + "\x00and more"))
			return Success
		}
	}
	return &Driver{GetErrorName: text("CUDA_ERROR_OUT_OF_MEMORY"), GetErrorString: text("out of memory")}
}

func TestErrors(t *testing.T) {
	for code, want := range map[Code]string{
		OutOfMemory: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
		12345:       "cuMemAlloc: CUDA error 12345: unknown to this driver",
	} {
		err := named().check("cuMemAlloc", code)
		var failed *Error
		if !errors.As(err, &failed) || failed.Code != code || err.Error() != want {
			t.Errorf("%d: %v", code, err)
		}
	}
	if err := named().check("cuMemAlloc", Success); err != nil {
		t.Errorf("Success: got %v", err)
	}
}

// Without a driver, Load returns an error and does not panic.
func TestLoad(t *testing.T) {
	driver, err := Load()
	switch {
	case err != nil && !strings.Contains(err.Error(), "NVIDIA driver"):
		t.Errorf("the error does not name what is missing: %v", err)
	case err == nil && (driver.Init == nil || driver.LaunchKernel == nil):
		t.Error("the table has nil functions")
	}
}
