package main

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/metrics"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// TestReference: docs/reference is what the code says.
func TestReference(t *testing.T) {
	for name, write := range map[string]func(*testing.T, *bytes.Buffer){
		"commands.md": referCommands, "exit-codes.md": referExits, "events.md": referEvents, "job-settings.md": referSettings,
		"metrics.md": referMetrics, "messages.md": referMessages, "../../internal/explain/topics.md": referTopics,
		"../../python/gpurun/_settings.py": referPython,
	} {
		t.Run(name, func(t *testing.T) {
			var page bytes.Buffer
			write(t, &page)
			path := filepath.Join("../../docs/reference", name)
			if *update {
				if err := os.WriteFile(path, page.Bytes(), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, page.Bytes()) {
				t.Errorf("%s is not current (%v): run go test ./cmd/gpurun -run TestReference -update", path, err)
			}
		})
	}
}

// referTopics copies the sections of the manual that gpurun explain shows.
func referTopics(t *testing.T, b *bytes.Buffer) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	for section := range strings.SplitSeq(string(page), "\n## ") {
		if strings.HasPrefix(section, "Exit statuses\n") || strings.HasPrefix(section, "Kinds of failure\n") {
			b.WriteString("## " + section + "\n")
		}
	}
}

const generated = "<!-- Generated from the code: go test ./cmd/gpurun -run TestReference -update -->\n\n"

// cell makes a text fit for a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;").Replace(strings.TrimSpace(text))
}

// code formats a text as code, "" if it is empty.
func code1(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "|", "\\|") + "`"
}

func referCommands(_ *testing.T, b *bytes.Buffer) {
	b.WriteString(generated + "# Commands and flags\n\n" +
		"Every flag of `gpurun run`, `plan` and `retry` can also be set with an environment variable\n" +
		"(`GPURUN_BATCH_SIZE` for `--batch-size`) or in a [job file](../job-file.md). `gpurun completion bash`\n" +
		"(`zsh`, `fish`) prints a script for the shell.\n")
	referCommand(b, newRoot())
}

func referCommand(b *bytes.Buffer, cmd *cobra.Command) {
	if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
		return
	}
	if cmd.Runnable() {
		fmt.Fprintf(b, "\n## %s\n\n%s.\n\n```help\n%s\n\n%s\n```\n", cmd.CommandPath(), strings.TrimSuffix(cmd.Short, "."), cmd.UseLine(), cmp.Or(cmd.Long, cmd.Short))
		referFlags(b, cmd)
	}
	for _, sub := range cmd.Commands() {
		referCommand(b, sub)
	}
}

func referFlags(b *bytes.Buffer, cmd *cobra.Command) {
	for _, section := range flagSections(cmd) {
		flags := slices.DeleteFunc(section.flags, func(f *pflag.Flag) bool { return f.Name == "help" || f.Name == helpAll })
		if len(flags) == 0 {
			continue
		}
		if section.title != allFlags {
			fmt.Fprintf(b, "\n**%s**\n", section.title)
		}
		b.WriteString("\n| flag | default | |\n|---|---|---|\n")
		for _, f := range flags {
			value, usage := pflag.UnquoteUsage(f)
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			standard := f.DefValue
			if standard == "false" || standard == "[]" || standard == "0" || standard == "0s" {
				standard = ""
			}
			fmt.Fprintf(b, "| %s | %s | %s |\n", code1(strings.TrimSpace(name+" "+value)), code1(standard), cell(usage))
		}
	}
}

func referExits(_ *testing.T, b *bytes.Buffer) {
	b.WriteString(generated + "# Exit statuses\n\n```help\n" + exitHelp + "\n```\n\n" +
		"With `--json-events`, the last event of a job that ends with an error is\n" +
		"`{\"event\":\"error\",\"kind\":…,\"message\":…}`. Its `kind` determines the exit status:\n\n| kind | exit status |\n|---|---|\n")
	for kind := fault.Kind(0); kind.Known(); kind++ {
		if status := exitCode(fault.New(kind, "a failure")); status != 1 || kind == fault.Unknown {
			text := strconv.Itoa(status)
			if kind == fault.Canceled {
				text = "130, or 143 after SIGTERM, SIGHUP or `gpurun cancel`"
			}
			fmt.Fprintf(b, "| `%s` | %s |\n", kind, text)
		}
	}
	b.WriteString("\n[Troubleshooting](../troubleshooting.md) says what to do about each.\n")
}

// kindNames describes the values of settings.
var kindNames = map[spec.Kind]string{
	spec.Bool: "true or false", spec.Int: "number", spec.Duration: "time", spec.Size: "size", spec.List: "list", spec.Repeated: "list",
	spec.Document: "mapping, or a file", spec.Steps: "list of steps",
}

func referSettings(_ *testing.T, b *bytes.Buffer) {
	b.WriteString(generated + "# Settings of a job file\n\n[Job files](../job-file.md) describes how to write them.\n" +
		"[job-file.schema.json](../job-file.schema.json) is the same as a JSON Schema.\n")
	for _, group := range headings {
		inGroup := slices.DeleteFunc(slices.Clone(jobSettings), func(s spec.Setting) bool { return s.Group != group || s.Place == spec.NotInFile })
		if len(inGroup) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n## %s\n\n| setting | value | default | |\n|---|---|---|---|\n", group)
		for _, s := range inGroup {
			value := cmp.Or(kindNames[s.Kind], "text")
			if s.OneOf() {
				value = ""
			}
			for _, word := range s.Words {
				value = strings.TrimPrefix(value+" or ", " or ") + "`" + word + "`"
			}
			fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", s.Name, value, code1(s.Default), cell(s.Help))
		}
	}
}

func referMetrics(t *testing.T, b *bytes.Buffer) {
	duration := orchestrator.Histogram{}
	duration.Add(time.Second)
	job := view.View{
		Total: 1, Concurrency: 1, Phase: view.PhasePreparing, FailuresByKind: map[string]int64{"batch": 1}, Batches: duration, Segments: duration,
		Figures: map[string]float64{"NAME": 1}, Workers: []view.Worker{{Phase: view.PhasePreparing}},
		Devices: []view.Device{{GPU: true, Batches: duration}},
	}
	card := metrics.GPU{Sample: gpu.Sample{
		Utilization: gpu.Some(1), Memory: gpu.Some(gpu.Memory{}), Temperature: gpu.Some(1), Power: gpu.Some(gpu.Watt(1)), PowerLimit: gpu.Some(gpu.Watt(1)), Throttle: gpu.Some(gpu.Reasons(0)),
	}, Leased: gpu.Some(uint64(1))}
	m := metrics.New(metrics.Source{
		Jobs: func() []jobs.State { return []jobs.State{{Job: jobs.Info{ID: "id"}, View: job}} }, GPUs: func() []metrics.GPU { return []metrics.GPU{card} },
		Runs: func() []cluster.Overview {
			return []cluster.Overview{{Output: "out", Nodes: []cluster.Node{{}}}}
		},
	})
	m.Allocations.Count("service", time.Second, true)
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	b.WriteString(generated + "# Metrics\n\n`gpurun run --listen`, `gpurun serve` and `gpurun run --metrics-file` expose these to Prometheus\n" +
		"([API](../api.md#metrics)), besides the usual `go_…` and `process_…`.\n\n| metric | type | labels | |\n|---|---|---|---|\n")
	help := regexp.MustCompile(`(?m)^# HELP (gpu\w*) (.*)\n# TYPE \w+ (\w+)\n(\w+)(?:\{(.*?)\})? `)
	rows := 0
	for _, match := range help.FindAllStringSubmatch(answer.Body.String(), -1) {
		var labels []string
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(match[5], -1) {
			if label[1] != "le" {
				labels = append(labels, "`"+label[1]+"`")
			}
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", match[1], match[3], strings.Join(labels, ", "), cell(match[2]))
		rows++
	}
	if rows < 20 {
		t.Errorf("only %d metrics in %s", rows, answer.Body)
	}
}

// notInPython are the settings of run that the Python package has under another name, or sets itself.
var notInPython = []string{"kernel", "kernel-config", "step", "step-config", "output", "job-file", "json-events", "quiet"}

// referPython writes the settings as keywords of Python functions.
func referPython(t *testing.T, b *bytes.Buffer) {
	b.WriteString("\"\"\"The settings of a job. Generated from the program: go test ./cmd/gpurun -run TestReference -update\"\"\"\n\n" +
		"from os import PathLike\nfrom typing import Literal, Sequence, TypedDict, Union\n\n\nclass Settings(TypedDict, total=False):\n")
	for _, s := range jobSettings {
		if s.Place != spec.OnlyInFile && !slices.Contains(notInPython, s.Name) {
			fmt.Fprintf(b, "    %s: %s\n    %q\n", strings.ReplaceAll(s.Name, "-", "_"), pythonType(s), s.Help)
		}
	}
}

// pythonType returns the type of a setting's values in Python.
func pythonType(s spec.Setting) string {
	words := fmt.Sprintf("%q", s.Words)
	literal := "Literal" + strings.ReplaceAll(words, `" "`, `", "`)
	kind := map[spec.Kind]string{
		spec.Bool: "bool", spec.Int: "int", spec.Duration: "str", spec.Size: "Union[int, str]",
		spec.List: "Union[str, Sequence[str]]", spec.Repeated: "Union[str, Sequence[str]]",
	}[s.Kind]
	switch {
	case s.OneOf():
		return literal
	case len(s.Words) > 0 && kind != "":
		return "Union[" + kind + ", " + literal + "]"
	case kind == "" && s.Path != nil:
		return "Union[str, PathLike[str]]"
	case kind == "":
		return "str"
	}
	return kind
}
