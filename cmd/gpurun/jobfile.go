package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/jobfile"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

var printHeader = []string{
	"All settings of a job, and where each comes from. Those that are commented out have",
	"their default. gpurun run -f accepts this file, in any folder.",
}

// printer writes the settings of a job as a job file.
type printer struct {
	job       *jobCommand
	base, cwd string // paths are printed relative to base; flags have them relative to cwd
	lines     []jobfile.Line
}

// printJobFile prints the effective settings. A default is commented out: written down, it
// could have another effect, such as a batch size that overrides the kernel's.
func printJobFile(w io.Writer, j *jobCommand, args []string) error {
	cwd, dir := files.Absolute("."), j.kernelDir()
	p := &printer{job: j, base: cmp.Or(dir, cwd), cwd: cwd}
	for _, s := range jobSettings {
		switch {
		case s.Place == spec.NotInFile:
		case s.Name == dirSetting:
			p.add(s, dirOrigin(dir, j), p.base)
		case s.Name == stepsSetting:
			p.addSteps(s)
		case s.Name == inputSetting:
			p.add(s, j.origins[s.Name], args...)
		default:
			p.add(s, j.origins[s.Name], textsOf(j.flags, s.Name)...)
		}
	}
	return jobfile.Print(w, printHeader, p.lines)
}

// dirOrigin is where the folder of the printed file comes from.
func dirOrigin(dir string, j *jobCommand) origin {
	from, set := j.origins[dirSetting]
	switch {
	case dir == "":
		return origin{text: "current folder"}
	case !set:
		return origin{text: "folder of " + j.options.JobFile}
	}
	return from
}

// add adds a setting with its origin, or its default if it has no values.
func (p *printer) add(s spec.Setting, from origin, texts ...string) {
	line := jobfile.Line{Group: s.Group, Comment: from.String()}
	v := jobfile.Value{IsList: s.IsList() && (len(texts) > 1 || s.Name != inputSetting)}
	for _, text := range texts {
		if s.Path != nil {
			text = s.Path(text, p.path)
		}
		v.Texts = append(v.Texts, text)
	}
	switch {
	case len(texts) == 0 && s.Default == "":
		line.Text, line.Comment, line.Off = s.Name+":", "not set", true
	case len(texts) == 0:
		line.Text, line.Comment, line.Off = jobfile.Pair(s.Name, s.Kind, jobfile.Value{Texts: []string{s.Default}}), "default", true
	case s.Kind == spec.Document:
		line.Text = jobfile.Pair(s.Name, s.Kind, documentValue(v.Texts[0]))
	default:
		line.Text = jobfile.Pair(s.Name, s.Kind, v)
	}
	p.lines = append(p.lines, line)
}

// documentValue returns a kernel's configuration: JSON, or the name of a file.
func documentValue(text string) jobfile.Value {
	if json.Valid([]byte(text)) && strings.ContainsAny(strings.TrimSpace(text)[:1], "{[") {
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

func (p *printer) addSteps(s spec.Setting) {
	steps := textsOf(p.job.flags, "step")
	if len(steps) == 0 {
		p.add(s, origin{})
		return
	}
	from, inFile := p.job.origins[stepsSetting]
	if !inFile {
		from = p.job.origins["step"]
	}
	config, _ := spec.Find("kernel-config")
	configs := make([]jobfile.Line, len(steps))
	for i, text := range textsOf(p.job.flags, "step-config") {
		name, value, _ := strings.Cut(text, "=")
		by := from
		if i >= p.job.fileConfigs {
			by = p.job.origins["step-config"]
		}
		configs[stepIndex(steps, name)] = jobfile.Line{
			Group: s.Group, Comment: by.String(),
			Text: "    " + jobfile.Pair(jobfile.StepConfig, config.Kind, documentValue(config.Path(value, p.path))),
		}
	}
	p.lines = append(p.lines, jobfile.Line{Group: s.Group, Text: s.Name + ":", Comment: from.String()})
	for i, kernel := range steps {
		p.lines = append(p.lines, jobfile.Line{Group: s.Group, Text: fmt.Sprintf("  - %s: %s", jobfile.StepKernel, jobfile.Quote(kernel))})
		if configs[i].Text != "" {
			p.lines = append(p.lines, configs[i])
		}
	}
}
