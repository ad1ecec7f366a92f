package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/internal/jobfile"
)

// Settings of a job file that are not flags.
const (
	inputSetting = "input"
	stepsSetting = "steps"
	dirSetting   = "dir"
)

// pathFlags are the flags that take the path of a file or folder, which a job file gives
// relative to itself. The kernel's own path is relative to the folder that it runs in.
var pathFlags = []string{
	"output", "column", "errors", "work-dir", "report", "json-events", "metrics-file", "kernel-config", "monitor-config",
	"services", "listen-token", "tls-cert", "tls-key", "python", "fetch-root",
}

// notInJobFile are the flags of run that a job file does not contain: steps replaces some,
// and no file names another.
var notInJobFile = []string{"help", "job-file", "step", "step-config"}

// closedFlags are the flags that take only the values that the shell completes.
var closedFlags = []string{"bad-input", "exec-mode", "format", "give-up", "log-level", "nan", "pin", "profile", "split"}

// jobSettings returns what a job file may contain: the flags of run, in the order and under
// the headings of its help.
func jobSettings() []jobfile.Setting {
	flags := newRun().Flags()
	settings := []jobfile.Setting{
		{Name: dirSetting, Group: "Folder", Usage: "folder that the paths in this file are relative to, and in which its kernel runs (default: that of the file)"},
		{Name: inputSetting, Group: "Input", Kind: jobfile.List, Usage: "what to read, as on the command line"},
	}
	for _, group := range flagGroups {
		for _, name := range group.names {
			if name == "step" {
				settings = append(settings, jobfile.Setting{
					Name: stepsSetting, Group: group.title, Kind: jobfile.Steps, Instead: []string{"step", "step-config"},
					Excludes: []string{"kernel", "kernel-config"},
					Usage:    "a chain of kernels instead of kernel: each processes the results of the previous one",
				})
			}
			if f := flags.Lookup(name); f != nil && !slices.Contains(notInJobFile, name) {
				settings = append(settings, flagSetting(f, group.title))
			}
		}
	}
	return settings
}

// flagSetting describes a flag as a setting.
func flagSetting(f *pflag.Flag, group string) jobfile.Setting {
	_, usage := pflag.UnquoteUsage(f)
	s := jobfile.Setting{Name: f.Name, Group: group, Usage: usage, Check: f.Value.Set}
	kind, word, _ := strings.Cut(f.Value.Type(), "|") // int|auto
	switch kind {
	case "bool":
		s.Kind = jobfile.Bool
	case "int", "int64":
		s.Kind = jobfile.Int
	case "duration":
		s.Kind = jobfile.Duration
	case "size":
		s.Kind = jobfile.Size
	case "stringSlice", "stringArray":
		s.Kind = jobfile.List
	}
	if f.Name == "kernel-config" {
		s.Kind, s.Check = jobfile.Document, nil
	}
	if word != "" {
		s.Words = []string{word}
	}
	if slices.Contains(closedFlags, f.Name) {
		s.Words, s.Closed = complete[f.Name], true
	}
	if f.DefValue != "[]" {
		s.Default = f.DefValue
	}
	return s
}

// jobSchema returns the JSON Schema of job files.
func jobSchema() []byte {
	return jobfile.Schema(jobSettings())
}
