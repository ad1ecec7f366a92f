package orchestrator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/filesum"
)

// fingerprint is everything a job's output depends on. A resumed job must have the same
// fingerprint, or its output would mix two kinds of results. Devices, batch sizes and
// the like may change.
type fingerprint struct {
	Input  inputPrint  `json:"input"`
	Kernel kernelPrint `json:"kernel"`
	// Config is the kernel's configuration.
	Config json.RawMessage `json:"config,omitempty"`
	Output outputPrint     `json:"output"`
	// Fetch is nil if no files are fetched.
	Fetch *fetchPrint `json:"fetch,omitempty"`
}

type inputPrint struct {
	Path     string    `json:"path"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	// Changed is when anything about the file changed, including its name: its ctime.
	Changed time.Time `json:"changed,omitzero"`
	// Content is how its bytes differ; set only in comparisons.
	Content string `json:"content,omitempty"`
	// Files are those of an input that is not one plain file; Path is then what the user
	// wrote, or - for a stream.
	Files []fileState `json:"files,omitempty"`
	// Format is what the user says that it is.
	Format  string   `json:"format,omitempty"`
	Columns []string `json:"columns,omitempty"`
	Offset  int64    `json:"offset,omitempty"`
	Limit   int64    `json:"limit,omitempty"`
}

type kernelPrint struct {
	Name string `json:"name"`
	Mode string `json:"mode,omitempty"`
	// ID is Config.ExecID, for a retry. The output does not depend on it.
	ID string `json:"id,omitempty"`
	// Files are the kernel's own files: its program and scripts.
	Files []filePrint `json:"files,omitempty"`
	// Modules are the other files the kernel has loaded so far in this job. They are
	// checksummed in full, whatever their size.
	Modules []filePrint `json:"modules,omitempty"`
}

type filePrint struct {
	Path string `json:"path"`
	Sum  string `json:"sum"`
}

type outputPrint struct {
	Parts     bool     `json:"parts,omitempty"`  // the output is a folder of parts
	Format    string   `json:"format,omitempty"` // of an encoded output
	Lines     string   `json:"lines,omitempty"`  // Config.Format
	Errors    string   `json:"errors,omitempty"`
	Keep      []string `json:"keep,omitempty"`
	Source    string   `json:"source_field,omitempty"`
	Reprocess bool     `json:"reprocess,omitempty"`
	Unchecked bool     `json:"unchecked,omitempty"`
	MaxRecord int64    `json:"max_record_bytes"`
	NaN       string   `json:"nan,omitempty"`
	// Arrays have absolute paths.
	Arrays []OutputArray `json:"arrays,omitempty"`
	// Framed: it is the job of a retry, whose results are frames.
	Framed bool `json:"framed,omitempty"`
	// Columns are those of a table.
	Columns []string `json:"columns,omitempty"`
}

// note records what distinguishes one state of the file from another.
func (i *inputPrint) note(info os.FileInfo) {
	i.Size, i.Modified, i.Changed = info.Size(), info.ModTime().UTC(), filesum.ChangeTime(info)
}

// takeFingerprint reads the files that the configuration names. files are the kernel's.
func takeFingerprint(c Config, files []string) (fingerprint, error) {
	f := fingerprint{
		Input:  inputPrint{Path: c.Input.Path, Offset: c.Input.Offset, Limit: c.Input.Limit, Files: c.inputs.states()},
		Kernel: kernelPrint{Name: c.Kernel.Name, Mode: unlessDefault(c.Kernel.ExecMode, "batch"), ID: c.Kernel.ExecID},
		Output: outputPrint{
			Parts: keepsParts(c.Output.Path), Lines: c.Format, Keep: c.Output.Keep, Source: c.Output.SourceField,
			Reprocess: c.Input.Reprocess, Unchecked: c.Input.NoValidate, MaxRecord: c.Input.MaxRecordBytes, NaN: unlessDefault(c.Kernel.NaN, NaNNull),
		},
		Fetch: takeFetchPrint(c),
	}
	if format := c.format(); format.Encodes() {
		f.Output.Format = format.Name
	}
	if c.Output.Errors != "" {
		f.Output.Errors = absolute(c.Output.Errors)
	}
	f.Output.Columns, f.Output.Framed = c.Output.Columns, c.framed && (c.columnSpec() != nil || c.Format == OpenAIBatch)
	for _, a := range c.Output.Arrays {
		f.Output.Arrays = append(f.Output.Arrays, OutputArray{Column: a.Column, Path: absolute(a.Path)})
	}
	if len(c.Kernel.Config) > 0 {
		var compact bytes.Buffer
		if err := json.Compact(&compact, c.Kernel.Config); err != nil {
			return f, fault.New(fault.Usage, "the kernel configuration is not valid JSON: %w", err)
		}
		f.Config = compact.Bytes()
	}
	if c.inputs != nil {
		f.Input.Format, f.Input.Columns = c.Input.Format, c.Input.Columns
	}
	if c.inputs == nil && c.Input.Path != "-" {
		f.Input.Path = absolute(c.Input.Path)
		info, err := os.Stat(c.Input.Path)
		if err != nil {
			return f, fault.New(fault.Usage, "input: %w", err)
		}
		f.Input.note(info)
	}
	for _, path := range files {
		sum, err := filesum.Program(path)
		if err != nil {
			return f, fault.New(fault.Incompatible, "read kernel: %w", err)
		}
		f.Kernel.Files = append(f.Kernel.Files, filePrint{Path: path, Sum: sum})
	}
	return f, nil
}

// unlessDefault returns a setting, "" for its default: a user may name it or not.
func unlessDefault(value, byDefault string) string {
	if value == byDefault {
		return ""
	}
	return value
}

// change is a difference between two fingerprints.
type change struct {
	what string // input, kernel, config, output
	text string
}

// changes returns how the job differs from the one that was started.
func (f fingerprint) changes(old fingerprint) []change {
	var list []change
	add := func(what string, texts ...string) {
		for _, text := range texts {
			list = append(list, change{what, text})
		}
	}
	add("input", inputDifferences(old.Input, f.Input)...)
	add("kernel", difference("the kernel", old.Kernel.Name, f.Kernel.Name)...)
	add("kernel", difference("the exec mode", old.Kernel.Mode, f.Kernel.Mode)...)
	before, now := slices.Concat(old.Kernel.Files, old.Kernel.Modules), slices.Concat(f.Kernel.Files, f.Kernel.Modules)
	if !slices.Equal(before, now) {
		add("kernel", "the kernel's files changed: "+changedFiles(before, now))
	}
	add("config", difference("the kernel's configuration", compactJSON(old.Config), compactJSON(f.Config))...)
	add("output", differences("the output's", old.Output, f.Output)...)
	add("fetch", differences("the fetched files'", old.Fetch, f.Fetch)...)
	return list
}

// compactJSON undoes the indentation of job.json; "" if there is no value.
func compactJSON(value json.RawMessage) string {
	data, err := json.Marshal(value)
	if err != nil || string(data) == "null" {
		return ""
	}
	return string(data)
}

func difference(what, before, now string) []string {
	if before == now {
		return nil
	}
	return []string{fmt.Sprintf("%s was %s and is now %s", what, cmp.Or(before, "not set"), cmp.Or(now, "not set"))}
}

// labels are the names by which users know some fields.
var labels = map[string]string{
	"modified": "modification time", "changed": "change time", "max_record_bytes": "maximum record size",
	"max_bytes": "maximum size", "errors": "errors file", "keep": "members to keep", "nan": "value for NaN", "source_field": "source field",
}

// times are fields that add nothing when others differ.
var times = []string{"modified", "changed"}

// differences describes each JSON field in which two values differ.
func differences(whose string, before, now any) (texts []string) {
	a, b := members(before), members(now)
	names := slices.Sorted(maps.Keys(a))
	for name := range b {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return bytes.Equal(a[name], b[name]) })
	if slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(times, name) }) {
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(times, name) })
	}
	for _, name := range names {
		texts = append(texts, difference(whose+" "+cmp.Or(labels[name], name), string(a[name]), string(b[name]))...)
	}
	return texts
}

// members returns the JSON fields of a value.
func members(value any) map[string]json.RawMessage {
	all := make(map[string]json.RawMessage)
	data, err := json.Marshal(value)
	if err == nil {
		_ = json.Unmarshal(data, &all)
	}
	return all
}

// acceptable lists the changes that a user may accept.
var acceptable = []string{"kernel", "config"}

// checkChanges refuses to resume a job with changes that were not accepted.
func checkChanges(list []change, accepted []string) error {
	var texts, accept []string
	for _, c := range list {
		if slices.Contains(accepted, c.what) {
			continue
		}
		texts = append(texts, c.text)
		if slices.Contains(acceptable, c.what) && !slices.Contains(accept, c.what) {
			accept = append(accept, c.what)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return fault.New(fault.Conflict, "the job has changed since it began: %s", strings.Join(texts, "; ")).
		WithCode(fault.Changed, strings.Join(accept, ","))
}
