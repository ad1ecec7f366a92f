package python

import (
	"context"
	"sort"

	"github.com/gpurun/gpurun/plugins"
)

// Facts is what a Python kernel has around it.
type Facts struct {
	Interpreter string
	Version     string
	// Frameworks are those that gpurun knows, present or not.
	Frameworks []Framework
}

// Framework is one that a kernel may compute with.
type Framework struct {
	Name string
	// Version is empty where it is not installed.
	Version string
	// Devices is what it sees, for those that the kernel uses: asking means to
	// import it.
	Devices string
}

// Frameworks are those whose versions are looked for.
var Frameworks = []string{"torch", "cupy", "tensorflow", "jax", "pyclesperanto"}

// Inspect finds out what the interpreter of a kernel, by its configuration, has.
func Inspect(ctx context.Context, config plugins.Config) (Facts, error) {
	k := &kernel{}
	defer k.Close()
	if err := k.start(ctx, config); err != nil {
		return Facts{}, err
	}
	reply, err := k.ask(ctx, order{Type: "describe", File: k.config.File, Frameworks: Frameworks}, "described")
	if err != nil {
		return Facts{}, err
	}
	facts := Facts{Interpreter: k.python.interpreter, Version: k.python.version}
	seen, err := k.ask(ctx, order{Type: "devices", Frameworks: reply.Imported}, "devices")
	if err != nil {
		return facts, err
	}
	for name, version := range reply.Versions {
		facts.Frameworks = append(facts.Frameworks, Framework{Name: name, Version: version, Devices: seen.Devices[name]})
	}
	sort.Slice(facts.Frameworks, func(i, j int) bool { return facts.Frameworks[i].Name < facts.Frameworks[j].Name })
	return facts, nil
}
