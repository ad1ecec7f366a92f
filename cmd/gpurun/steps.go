package main

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/plugins"
)

// chainOf combines the steps given instead of -k into one kernel and its configuration.
func chainOf(kernel, kernelConfig string, steps, configs []string) (string, []byte, error) {
	switch {
	case len(steps) == 0:
		return "", nil, usagef("--step-config requires --step; use --kernel-config with -k")
	case kernel != "":
		return "", nil, usagef("-k and --step cannot be combined: name all kernels with --step")
	case kernelConfig != "":
		return "", nil, usagef("--kernel-config requires -k; use --step-config %s=%s", steps[0], kernelConfig)
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
			return "", nil, usagef("--step-config %q: use STEP=JSON, where STEP is one of %s, or its number", config, strings.Join(steps, ", "))
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
		if encoded, err = json.Marshal(values); err != nil { // null for steps without a configuration
			return "", nil, usagef("--step-config: %w", err)
		}
	}
	return strings.Join(steps, plugins.StepSeparator), encoded, nil
}

// stepIndex finds a step by its name, if unique, or by its number. It returns -1 if there
// is none.
func stepIndex(steps []string, name string) int {
	found := -1
	for i, step := range steps {
		if step == name {
			if found >= 0 {
				return -1 // ambiguous: the number is needed
			}
			found = i
		}
	}
	if n, err := strconv.Atoi(name); found < 0 && err == nil && n >= 1 && n <= len(steps) {
		return n - 1
	}
	return found
}
