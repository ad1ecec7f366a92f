package python

import (
	"context"
	"maps"
	"slices"

	"github.com/gpurun/gpurun/plugins"
)

// Facts describes the environment of a Python kernel.
type Facts struct {
	Interpreter string
	Version     string
	// Prepare is what runs prepare: "threads", "processes", or "" if there is none.
	Prepare string
	// Frameworks are those that gpurun knows, installed or not.
	Frameworks []Framework
}

// Framework is an array framework that a kernel may use.
type Framework struct {
	Name string
	// Version is empty if it is not installed.
	Version string
	// Devices lists the devices it sees. It is set only for frameworks that the
	// kernel uses, since asking one means importing it.
	Devices string
}

// Frameworks are those whose versions Inspect reports.
var Frameworks = []string{"torch", "cupy", "tensorflow", "jax", "pyclesperanto"}

// Inspect reports what the interpreter of a kernel with this configuration offers.
func Inspect(ctx context.Context, config plugins.Config) (Facts, error) {
	k := &kernel{}
	defer k.Close()
	if err := k.start(ctx, config); err != nil {
		return Facts{}, err
	}
	reply, err := k.session.ask(ctx, request{Type: "describe", File: k.config.File, Function: k.config.Function, Frameworks: Frameworks}, "described")
	if err != nil {
		return Facts{}, err
	}
	facts := Facts{Interpreter: k.session.python.interpreter, Version: k.session.python.version}
	switch {
	case reply.SetupPrepare:
		facts.Prepare = "processes"
	case reply.Prepare:
		facts.Prepare = "threads"
	}
	seen, err := k.session.ask(ctx, request{Type: "devices", Frameworks: reply.Imported}, "devices")
	if err != nil {
		return facts, err
	}
	for _, name := range slices.Sorted(maps.Keys(reply.Versions)) {
		facts.Frameworks = append(facts.Frameworks, Framework{Name: name, Version: reply.Versions[name], Devices: seen.Devices[name]})
	}
	return facts, nil
}
