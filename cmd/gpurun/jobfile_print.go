package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/internal/jobfile"
)

var printHeader = []string{
	"All settings of a job, and where each comes from. Those that are commented out have",
	"their default. gpurun run -f accepts this file, in any folder.",
}

// printer writes the settings of a job as a job file.
type printer struct {
	*runFlags
	base, cwd string // paths are printed relative to base; flags have them relative to cwd
	lines     []jobfile.Line
}

// printJobFile prints the effective settings. A default is commented out: written down, it
// could have another effect, such as a batch size that overrides the kernel's.
func (f *runFlags) printJobFile(w io.Writer, flags *pflag.FlagSet, args []string) error {
	cwd, err := os.Getwd()
	if err != nil {
		return usagef("working folder: %w", err)
	}
	dir, err := f.job.kernelDir()
	if err != nil {
		return err
	}
	p := &printer{runFlags: f, base: cmp.Or(dir, cwd), cwd: cwd}
	for _, s := range jobSettings() {
		switch s.Name {
		case dirSetting:
			p.printDir(s, dir)
		case inputSetting:
			p.printInput(s, args)
		case stepsSetting:
			p.printSteps(s)
		default:
			p.printFlag(s, flags.Lookup(s.Name))
		}
	}
	return jobfile.Print(w, printHeader, p.lines)
}

// add adds a setting with its value and origin.
func (p *printer) add(s jobfile.Setting, v jobfile.Value, from origin) {
	p.lines = append(p.lines, jobfile.Line{Group: s.Group, Text: jobfile.Pair(s.Name, s.Kind, v), Comment: from.String()})
}

// addUnset adds a setting that has no value.
func (p *printer) addUnset(s jobfile.Setting) {
	p.lines = append(p.lines, jobfile.Line{Group: s.Group, Text: s.Name + ":", Comment: "not set", Off: true})
}

func (p *printer) printDir(s jobfile.Setting, dir string) {
	from, set := p.job.origins[dirSetting]
	switch {
	case dir != "" && !set:
		from = origin{text: "folder of " + p.job.name}
	case dir == "":
		from = origin{text: "current folder"}
	}
	p.add(s, jobfile.Value{Texts: []string{p.base}}, from)
}

func (p *printer) printInput(s jobfile.Setting, args []string) {
	if len(args) == 0 {
		p.addUnset(s)
		return
	}
	v := jobfile.Value{IsList: len(args) > 1}
	for _, arg := range args {
		list, isList := strings.CutPrefix(arg, "@")
		if arg = p.path(list); isList {
			arg = "@" + arg
		}
		v.Texts = append(v.Texts, arg)
	}
	p.add(s, v, p.job.origins[inputSetting])
}

func (p *printer) printFlag(s jobfile.Setting, flag *pflag.Flag) {
	from, set := p.job.origins[s.Name]
	switch {
	case !set && s.Default == "":
		p.addUnset(s)
	case !set:
		text := jobfile.Pair(s.Name, s.Kind, jobfile.Value{Texts: []string{s.Default}})
		p.lines = append(p.lines, jobfile.Line{Group: s.Group, Text: text, Comment: "default", Off: true})
	default:
		p.add(s, p.flagValue(flag), from)
	}
}

// flagValue returns the value of a flag as a job file has it.
func (p *printer) flagValue(flag *pflag.Flag) jobfile.Value {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		texts := list.GetSlice()
		for i, text := range texts {
			if column, path, ok := cutColumn(text); ok && flag.Name == "column" {
				texts[i] = column + "=" + p.path(path)
			}
		}
		return jobfile.Value{IsList: true, Texts: texts}
	}
	text := flag.Value.String()
	if flag.Name == "kernel-config" {
		return p.configValue(text)
	}
	if slices.Contains(pathFlags, flag.Name) && (flag.Name != "python" || strings.Contains(text, "/")) {
		text = p.path(text)
	}
	return jobfile.Value{Texts: []string{text}}
}

// configValue returns a kernel's configuration: JSON, or the name of a file.
func (p *printer) configValue(text string) jobfile.Value {
	switch trimmed := strings.TrimSpace(text); {
	case namesFile(text):
		return jobfile.Value{Texts: []string{p.path(text)}}
	case json.Valid([]byte(text)) && strings.ContainsAny(trimmed[:1], "{["):
		return jobfile.Value{JSON: jobfile.SpacedJSON([]byte(text))}
	}
	return jobfile.Value{Texts: []string{text}}
}

// path returns a path relative to the printed file's folder; one outside of it is absolute,
// unless it was written relative to that folder.
func (p *printer) path(text string) string {
	if text == "" || text == "-" || !filepath.IsAbs(text) && p.base == p.cwd {
		return text
	}
	full := text
	if !filepath.IsAbs(text) {
		full = filepath.Join(p.cwd, text)
	}
	shown, err := filepath.Rel(p.base, full)
	if err != nil || !filepath.IsLocal(shown) {
		shown = full
	}
	if strings.HasSuffix(text, "/") && !strings.HasSuffix(shown, "/") {
		shown += "/"
	}
	return shown
}

func (p *printer) printSteps(s jobfile.Setting) {
	if len(p.steps) == 0 {
		p.addUnset(s)
		return
	}
	from, inFile := p.job.origins[stepsSetting]
	if !inFile {
		from = p.job.origins["step"]
	}
	configs := make([]jobfile.Line, len(p.steps))
	for i, config := range p.stepConfigs {
		name, value, _ := strings.Cut(config, "=")
		by := from
		if i >= p.job.stepConfigs {
			by = p.job.origins["step-config"]
		}
		configs[stepIndex(p.steps, name)] = jobfile.Line{
			Group: s.Group, Comment: by.String(),
			Text: "    " + jobfile.Pair(jobfile.StepConfig, jobfile.Document, p.configValue(value)),
		}
	}
	p.lines = append(p.lines, jobfile.Line{Group: s.Group, Text: s.Name + ":", Comment: from.String()})
	for i, kernel := range p.steps {
		p.lines = append(p.lines, jobfile.Line{Group: s.Group, Text: fmt.Sprintf("  - %s: %s", jobfile.StepKernel, jobfile.Quote(kernel))})
		if configs[i].Text != "" {
			p.lines = append(p.lines, configs[i])
		}
	}
}
