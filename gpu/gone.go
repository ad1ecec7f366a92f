package gpu

import (
	"errors"
	"fmt"
	"strings"
)

// errNoInstance: there is nothing to compute on.
var errNoInstance = errors.New("in MIG mode and without an instance")

// noInstanceRemedy is what to do about it.
const noInstanceRemedy = "create instances (nvidia-smi mig -cgi PROFILE -C), or leave MIG mode (nvidia-smi -mig 0)"

// whyGone is a sentence about each reason for which GPUs cannot be used, with all
// GPUs that it holds for: "GPU 1 and GPU 3: the GPU is lost".
func whyGone(gone []candidate) []string {
	var reasons []string
	names := make(map[string][]string)
	for _, g := range gone {
		reason := g.gone.Error()
		if names[reason] == nil {
			reasons = append(reasons, reason)
		}
		names[reason] = append(names[reason], g.String())
	}
	for i, reason := range reasons {
		list := names[reason]
		switch {
		case reason != errNoInstance.Error():
			reasons[i] = fmt.Sprintf("%s: %s", Enumerate(list), reason)
		case len(list) == 1:
			reasons[i] = fmt.Sprintf("%s is in MIG mode and has no instance: %s", list[0], noInstanceRemedy)
		default:
			reasons[i] = fmt.Sprintf("%s are in MIG mode and have no instance: %s", Enumerate(list), noInstanceRemedy)
		}
	}
	return reasons
}

// Enumerate writes a list for a sentence: "a, b and c".
func Enumerate(list []string) string {
	last := len(list) - 1
	if last < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:last], ", ") + " and " + list[last]
}
