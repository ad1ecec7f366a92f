package main

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/plugins"
)

// chainOf makes one kernel, and its configuration, of the steps that were given
// instead of -k.
func chainOf(kernel, kernelConfig string, steps, configs []string) (string, []byte, error) {
	switch {
	case len(steps) == 0:
		return "", nil, usagef("--step-config is for --step; the configuration of -k is --kernel-config")
	case kernel != "":
		return "", nil, usagef("-k and --step cannot be given together: name all kernels with --step")
	case kernelConfig != "":
		return "", nil, usagef("--kernel-config is for -k; write --step-config %s=%s", steps[0], kernelConfig)
	}
	for _, step := range steps {
		if strings.TrimSpace(step) == "" || strings.Contains(step, plugins.StepSeparator) {
			return "", nil, usagef("--step %q names no kernel", step)
		}
	}
	values := make([]json.RawMessage, len(steps))
	for _, config := range configs {
		name, value, ok := strings.Cut(config, "=")
		i := stepIndex(steps, name)
		if !ok || i < 0 {
			return "", nil, usagef("--step-config %q: write STEP=JSON, where STEP is one of %s, or its number", config, strings.Join(steps, ", "))
		}
		data, err := readConfig("--step-config", value)
		if err != nil {
			return "", nil, err
		}
		values[i] = data
	}
	if len(steps) == 1 {
		return steps[0], values[0], nil
	}
	var encoded []byte
	if len(configs) > 0 {
		var err error
		if encoded, err = json.Marshal(values); err != nil { // null for those without
			return "", nil, usagef("--step-config: %w", err)
		}
	}
	return strings.Join(steps, plugins.StepSeparator), encoded, nil
}

// stepIndex finds a step by its name, if only one has it, or by its number; -1 if
// there is none.
func stepIndex(steps []string, name string) int {
	found := -1
	for i, step := range steps {
		if step == name {
			if found >= 0 {
				return -1 // by number, then
			}
			found = i
		}
	}
	if n, err := strconv.Atoi(name); found < 0 && err == nil && n >= 1 && n <= len(steps) {
		return n - 1
	}
	return found
}
