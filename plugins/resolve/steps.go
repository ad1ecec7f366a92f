package resolve

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// StepSeparator joins the names of kernels that form a chain: each computes the results of
// the one before it. The name of the chain is the joined names; its configuration is an
// array with one value for each kernel.
const StepSeparator = " → "

// ChainConfig is the configuration of the built-in kernel chain.
type ChainConfig struct {
	Steps []ChainStep `json:"steps"`
	// NaN is PythonOptions.NaN, applied to values that pass from any step to the next.
	NaN string `json:"nan,omitempty"`
}

// ChainStep is one kernel of a chain and how to start its process.
type ChainStep struct {
	Name   string          `json:"name"`
	Path   string          `json:"path"`
	Args   []string        `json:"args,omitempty"`
	Config json.RawMessage `json:"config,omitempty"`
}

// resolveSteps resolves the kernels of a chain. Adjacent Python files share a process, in
// which columns pass from one to the next.
func (r Resolver) resolveSteps(names []string, config plugins.Config) (Named, error) {
	configs, err := stepConfigs(config, len(names))
	if err != nil {
		return Named{}, err
	}
	chain := ChainConfig{NaN: r.Python.NaN}
	var all Named // of what the steps have
	for i := 0; i < len(names); {
		end := i + 1
		for end < len(names) && isPython(names[i]) && isPython(names[end]) {
			end++
		}
		r.later = i > 0
		named, err := r.resolveStep(names[i:end], configs[i:end])
		if err != nil || end-i == len(names) {
			return named, err
		}
		chain.Steps = append(chain.Steps, ChainStep{
			Name: strings.Join(names[i:end], StepSeparator), Path: named.Path, Args: named.Args, Config: json.RawMessage(named.Config),
		})
		all.Files, all.Data, all.Reread = append(all.Files, named.Files...), append(all.Data, named.Data...), append(all.Reread, named.Reread...)
		all.Python = all.Python || named.Python
		i = end
	}
	named, err := r.builtin("chain", chain)
	all.Path, all.Args, all.Config = named.Path, named.Args, named.Config
	return all, err
}

func isPython(name string) bool {
	_, _, ok := CutPython(name)
	return ok
}

// resolveStep resolves one step, or several Python files that share a process.
func (r Resolver) resolveStep(names []string, configs []json.RawMessage) (Named, error) {
	if !strings.HasPrefix(names[0], "exec:") {
		r.Exec = ExecOptions{} // they apply to other steps
	}
	if len(names) == 1 {
		return r.Resolve(names[0], plugins.Config(configs[0]))
	}
	return r.resolvePythons(names, configs)
}

// stepConfigs splits the array of configurations; null means none.
func stepConfigs(config plugins.Config, count int) ([]json.RawMessage, error) {
	configs := make([]json.RawMessage, count)
	if len(bytes.TrimSpace(config)) == 0 {
		return configs, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(config, &list); err != nil || len(list) != count {
		return nil, fault.NotAConfig.New("the configuration of %d steps must be an array of %d values", count, count)
	}
	for i, one := range list {
		if string(bytes.TrimSpace(one)) != "null" {
			configs[i] = one
		}
	}
	return configs, nil
}
