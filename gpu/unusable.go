package gpu

import (
	"errors"
	"fmt"
	"strings"
)

// errNoInstance means that there is nothing to compute on.
var errNoInstance = errors.New("in MIG mode without an instance")

// noInstanceRemedy is how to fix errNoInstance.
const noInstanceRemedy = "create instances (nvidia-smi mig -cgi PROFILE -C), or leave MIG mode (nvidia-smi -mig 0)"

// whyUnusable returns one message per reason why GPUs cannot be used, with the GPUs it
// applies to: "GPU 1 and GPU 3: the GPU is lost".
func whyUnusable(unusable []candidate) []string {
	var reasons []string
	names := make(map[string][]string)
	for _, g := range unusable {
		reason := g.unusable.Error()
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

// Enumerate joins a list for a sentence: "a, b and c".
func Enumerate(list []string) string {
	last := len(list) - 1
	if last < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:last], ", ") + " and " + list[last]
}
