// Package symptom recognizes by the text of an error what has failed: memory, a device, or a process.
package symptom

import (
	"slices"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// Diagnose determines the kind of an error from its text, and the evidence for it:
// [fault.OOM] if device memory ran out, with [fault.HostMemory] if host memory did;
// [fault.Device] if the device is lost, always with [fault.Text], because the text may be
// part of a record; [fault.Crash] if the device works but the process can no longer use
// it, with [fault.Context], or with [fault.Outside] if another process is the reason; [fault.Unknown] if it does not recognize the text.
//
// Kernels need not call it: gpurun applies it to every unclassified error. The message
// may have many lines; later lines take precedence. In Python tracebacks, Diagnose
// considers only the exceptions and not the source lines, and only the last chain of
// exceptions, so that an error that was caught and printed earlier is not mistaken for
// the cause. It ignores quoted text, which is data: a record that mentions a lost GPU
// must not cost one.
func Diagnose(message string) (fault.Kind, fault.Sign) {
	for _, line := range causeLines(message) {
		if found := findSymptom(line); found != nil && found.kind != fault.Unknown {
			return found.kind, found.sign
		}
	}
	return fault.Unknown, ""
}

// findSymptom returns the symptoms that a lowercase line shows; nil if it shows none.
func findSymptom(line string) *symptoms {
	for i, known := range knownSymptoms {
		if slices.ContainsFunc(known.patterns, func(pattern string) bool { return matches(line, pattern) }) {
			return &knownSymptoms[i]
		}
	}
	return nil
}

// matches reports whether a line contains one of the spellings of a pattern.
func matches(line, pattern string) bool {
	for spelling := range strings.SplitSeq(pattern, "|") {
		if contains(line, spelling) {
			return true
		}
	}
	return false
}

func contains(line, pattern string) bool {
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

// Classify gives an unclassified err the kind that its text or its detail indicates, or else
// kind. On a CPU device no text can mean a lost GPU.
func Classify(kind fault.Kind, err error, onCPU bool) error {
	e := fault.As(err)
	if err == nil || e != nil && e.Kind != fault.Unknown {
		return err
	}
	if e == nil {
		e = &fault.Error{}
	}
	found, sign := Diagnose(err.Error())
	if found == fault.Unknown {
		found, sign = Diagnose(e.Detail)
	}
	if found == fault.Unknown || found == fault.Device && onCPU {
		found, sign = kind, ""
	}
	return fault.KernelException.Of(found, "%w", err).WithDetail(e.Detail).InStep(e.Step).Signed(sign)
}

// Died returns the failure for a process of a kernel that exited while it was working, with the
// end of its output. foreign: a signal from outside killed it.
func Died(how string, foreign bool, output string) *fault.Error {
	e := fault.KernelCrashed.New("%s", how).WithDetail(output)
	if foreign {
		return e.Signed(fault.Outside)
	}
	switch _, sign := Diagnose(output); sign {
	case fault.HostMemory:
		e.Kind, e.Sign = fault.OOM, sign
	case fault.Outside, fault.Context:
		e.Sign = sign
	}
	return e
}
