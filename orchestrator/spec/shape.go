package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// Change is a difference between two runs of a job.
type Change struct {
	What string // input, kernel, config, output, fetch
	Text string
}

// shape is what of the settings shapes the results. A resumed job must have the same shape, or
// its output would mix two kinds of results. Devices, batch sizes and the like may change.
type shape struct {
	kernel, mode, config string
	output               outputShape
	fetch                *fetchShape // nil if no files are fetched
}

type outputShape struct {
	Parts     bool          `json:"parts,omitempty"` // the output is a folder of parts
	Format    string        `json:"format"`
	Lines     string        `json:"lines,omitempty"` // Config.Format
	Errors    string        `json:"errors,omitempty"`
	Keep      []string      `json:"keep,omitempty"`
	Source    string        `json:"source_field,omitempty"`
	Reprocess bool          `json:"reprocess,omitempty"`
	Unchecked bool          `json:"unchecked,omitempty"`
	MaxRecord int64         `json:"max_record_bytes"`
	NaN       string        `json:"nan,omitempty"`
	Arrays    []OutputArray `json:"arrays,omitempty"`
	Columns   []string      `json:"columns,omitempty"`
}

type fetchShape struct {
	Members  []FetchMember `json:"members"`
	Root     string        `json:"root"`
	MaxBytes int64         `json:"max_bytes,omitempty"`
}

func (s *Spec) shape() shape {
	stored := s.Stored()
	is := shape{
		kernel: s.Kernel.Name, mode: unlessDefault(s.Kernel.ExecMode, "batch"),
		output: outputShape{
			Parts: s.Results.Target.kind == parts, Format: s.Results.Format.Name, Lines: s.Format, Errors: stored.Output.Errors, Keep: s.Output.Keep,
			Source: s.Output.SourceField, Reprocess: s.Input.Reprocess, Unchecked: s.Input.NoValidate, MaxRecord: s.Input.MaxRecordBytes,
			NaN: unlessDefault(s.Kernel.NaN, NaNNull), Arrays: stored.Output.Arrays, Columns: s.Output.Columns,
		},
	}
	var compact bytes.Buffer // job.json is indented
	if json.Compact(&compact, s.Kernel.Config) == nil {
		is.config = compact.String()
	}
	if len(s.Fetch.Members) > 0 {
		is.fetch = &fetchShape{s.Fetch.Members, s.Fetch.Root, s.Fetch.MaxBytes}
	}
	return is
}

// unlessDefault returns a setting, "" for its default: a user may name it or not.
func unlessDefault(value, byDefault string) string {
	if value == byDefault {
		return ""
	}
	return value
}

// Changes returns how the settings that shape the results differ from those of an earlier run.
func (s *Spec) Changes(old *Spec) (list []Change) {
	was, is := old.shape(), s.shape()
	add := func(what string, texts ...string) {
		for _, text := range texts {
			list = append(list, Change{what, text})
		}
	}
	add("kernel", difference("the kernel", was.kernel, is.kernel)...)
	add("kernel", difference("the exec mode", was.mode, is.mode)...)
	add("config", difference("the kernel's configuration", was.config, is.config)...)
	add("output", Differences("the output's", was.output, is.output)...)
	add("fetch", Differences("the fetched files'", was.fetch, is.fetch)...)
	return list
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

// Differences describes each JSON field in which two values differ.
func Differences(whose string, before, now any) (texts []string) {
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

// CheckChanges refuses to resume a job with changes that were not accepted.
func CheckChanges(list []Change, accepted []string) error {
	var texts, accept []string
	for _, c := range list {
		if slices.Contains(accepted, c.What) {
			continue
		}
		texts = append(texts, c.Text)
		if slices.Contains(Acceptable, c.What) && !slices.Contains(accept, c.What) {
			accept = append(accept, c.What)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return fault.JobChanged.New("the job has changed since it began: %s", strings.Join(texts, "; ")).
		Set(strings.Join(accept, ","))
}
