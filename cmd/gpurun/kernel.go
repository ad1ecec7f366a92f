package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// setKernel sets the kernel, or the steps that replace it, with their configuration.
func setKernel(k *orchestrator.Kernel, flags *pflag.FlagSet) (err error) {
	steps, configs, config := textsOf(flags, "step"), textsOf(flags, "step-config"), textOf(flags, "kernel-config")
	named := k.Name
	if len(steps) > 0 || len(configs) > 0 {
		named = "steps"
		k.Name, k.Config, err = chainOf(k.Name, config, steps, configs)
	} else {
		k.Config, err = readConfig("--kernel-config", config)
	}
	if err == nil {
		k.Config, err = withTruncated(named, k.Config, textOf(flags, "truncated"))
	}
	return err
}

// withTruncated returns the configuration of openai: or serve: with a member that says what
// becomes of answers that were cut off.
func withTruncated(kernel string, config []byte, value string) ([]byte, error) {
	if value == "" {
		return config, nil
	}
	if !resolve.IsModelServer(kernel) {
		return nil, fault.BadValue.New("--truncated is for openai: and serve:, not for %s", kernel)
	}
	members := make(map[string]json.RawMessage)
	if len(config) > 0 {
		if err := json.Unmarshal(config, &members); err != nil || members == nil {
			return nil, fault.NotAConfig.New("--kernel-config is not a JSON object")
		}
	}
	members["truncated"] = strconv.AppendQuote(nil, value)
	return json.Marshal(members)
}

// byteOrderMark starts files written by some editors.
const byteOrderMark = "\ufeff"

// readConfig accepts inline JSON or the name of a JSON file.
func readConfig(flag, value string) ([]byte, error) {
	if value == "" {
		return nil, nil
	}
	if json.Valid([]byte(value)) {
		return []byte(value), nil
	}
	if !spec.NamesFile(value) {
		return nil, fault.NotAConfig.New("%s is not valid JSON: %s", flag, value)
	}
	data, err := os.ReadFile(value)
	if err != nil {
		return nil, fault.NotAConfig.New("%s: %w", flag, err)
	}
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	if !json.Valid(data) {
		return nil, fault.NotAConfig.New("%s: %s is not valid JSON", flag, value)
	}
	return data, nil
}

// chainOf combines the steps given instead of -k into one kernel and its configuration.
func chainOf(kernel, kernelConfig string, steps, configs []string) (string, []byte, error) {
	switch {
	case len(steps) == 0:
		return "", nil, fault.FlagsClash.New("--step-config requires --step; use --kernel-config with -k")
	case kernel != "":
		return "", nil, fault.FlagsClash.New("-k and --step cannot be combined: name all kernels with --step")
	case kernelConfig != "":
		return "", nil, fault.FlagsClash.New("--kernel-config requires -k; use --step-config %s=%s", steps[0], kernelConfig)
	}
	for _, step := range steps {
		if strings.TrimSpace(step) == "" || strings.Contains(step, resolve.StepSeparator) {
			return "", nil, fault.FlagsClash.New("--step %q names no kernel", step)
		}
	}
	values := make([]json.RawMessage, len(steps))
	for _, config := range configs {
		name, value, ok := strings.Cut(config, "=")
		i := stepIndex(steps, name)
		if !ok || i < 0 {
			return "", nil, fault.FlagsClash.New("--step-config %q: use STEP=JSON, where STEP is one of %s, or its number", config, strings.Join(steps, ", "))
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
			return "", nil, fault.FlagsClash.New("--step-config: %w", err)
		}
	}
	return strings.Join(steps, resolve.StepSeparator), encoded, nil
}

// stepConfig returns the configuration of a step as --step-config takes it.
func stepConfig(index int, text string) string { return fmt.Sprintf("%d=%s", index+1, text) }

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

// joinTypes joins what a comma in a type has separated: dec:decimal(38,10), image:struct(bytes,path).
func joinTypes(columns []string) (joined []string) {
	for _, text := range columns {
		isOpen := func(t string) bool { return strings.Contains(t, ":decimal(") || strings.Contains(t, ":struct(") }
		if n := len(joined); n > 0 && strings.LastIndexByte(joined[n-1], '(') > strings.LastIndexByte(joined[n-1], ')') && isOpen(joined[n-1]) {
			joined[n-1] += "," + text
		} else {
			joined = append(joined, text)
		}
	}
	return joined
}
