package cuda

import (
	"fmt"
	"unsafe"
)

// Code is a CUresult.
type Code int32

// The codes that callers act on.
const (
	Success               Code = 0
	OutOfMemory           Code = 2
	DeviceUnavailable     Code = 46
	NoDevice              Code = 100
	InvalidDevice         Code = 101
	NoBinaryForGPU        Code = 209
	ECCUncorrectable      Code = 214
	InvalidPTX            Code = 218
	NVLinkUncorrectable   Code = 220
	UnsupportedPTXVersion Code = 222
	SystemNotReady        Code = 802
)

// Error describes a failed call.
type Error struct {
	Call string // cuMemAlloc
	Code Code
	Name string // CUDA_ERROR_OUT_OF_MEMORY
	Text string // out of memory
	Log  string // the compiler's log, if the call compiled PTX
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s: %s", e.Call, e.Name, e.Text)
	if e.Log != "" {
		text += ": " + e.Log
	}
	return text
}

// check converts the result of a call to an error, nil for success.
func (d *Driver) check(call string, code Code) error {
	if code == Success {
		return nil
	}
	return d.newError(call, code)
}

func (d *Driver) newError(call string, code Code) *Error {
	e := &Error{Call: call, Code: code, Name: fmt.Sprintf("CUDA error %d", code), Text: "unknown to this driver"}
	var name, text *byte
	if d.GetErrorName(code, &name) == Success && d.GetErrorString(code, &text) == Success {
		e.Name, e.Text = goString(name), goString(text)
	}
	return e
}

// goString copies a C string.
func goString(s *byte) string {
	if s == nil {
		return ""
	}
	length := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(s), length)) != 0 {
		length++
	}
	return string(unsafe.Slice(s, length))
}

// cString returns s as a NUL-terminated C string.
func cString(s string) *byte { return unsafe.SliceData(append([]byte(s), 0)) }
