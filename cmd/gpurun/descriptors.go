package main

import (
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/stdfd"
	"github.com/gpurun/gpurun/orchestrator"
)

// checkDescriptors rejects a job whose data would pass through a standard descriptor that
// was closed when gpurun started: output would be lost without an error, and input would
// be empty. A closed descriptor that carries no data is fine, and so is /dev/null, which
// is a deliberate choice.
func checkDescriptors(config orchestrator.Config, o options) error {
	type named struct {
		what, path string
		dash       int // the descriptor that - stands for
	}
	all := []named{
		{"the output", config.Output.Path, stdfd.Stdout},
		{"--errors", config.Output.Errors, stdfd.Stdout},
		{"--json-events", o.Events, stdfd.Stderr},
		{"--report", o.Report, stdfd.Stdout},
	}
	for _, path := range append([]string{config.Input.Path}, config.Input.Paths...) {
		all = append(all, named{"the input", path, stdfd.Stdin})
	}
	for _, one := range all {
		fd, ok := stdfd.Of(one.path)
		if one.path == "-" {
			fd, ok = one.dash, true
		}
		if ok && stdfd.Closed(fd) {
			return fault.ClosedStream.New("%s is %s, which is closed; redirect it or name a file", one.what, stdfd.Name(fd))
		}
	}
	return nil
}
