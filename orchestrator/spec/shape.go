package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// Change is a difference between two runs of a job.
type Change struct {
	What string // input, kernel, config, output
	Text string
}

// Changes returns how the settings that shape the results differ from those of an earlier run: a
// resumed job must have the same, or its output would mix two kinds of results. Devices, batch
// sizes and the like may change.
func (s *Spec) Changes(old *Spec) (list []Change) {
	was, is := old.Stored(), s.Stored()
	add := func(what, label, before, now string) {
		if before != now {
			list = append(list, Change{what, Difference(label, before, now)})
		}
	}
	for _, row := range shaping() {
		what := "output"
		if row.Group == GroupKernel {
			what = "kernel"
		}
		add(what, "the "+cmp.Or(labels[row.Name], strings.ReplaceAll(row.Name, "-", " ")), row.text(&was.Config), row.text(&is.Config))
	}
	add("config", "the kernel's configuration", compact(was.Kernel.Config), compact(is.Kernel.Config))
	add("output", "the output", was.Results.Target.kind.String(), is.Results.Target.kind.String())
	return list
}

// shaping returns the settings that shape results, once for each field that may hold them. The
// configuration of the kernel is not a field.
func shaping() (rows []Setting) {
	for _, row := range Settings {
		for _, field := range []string{row.Field, row.TableField} {
			if row.Field = field; row.Shapes && field != "" {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// Restore sets the settings that shape results, in the struct to which config points, to those of
// the Spec, except those that are set there or given.
func (s *Spec) Restore(config any, given func(name string) bool) {
	for _, row := range shaping() {
		if given(row.Name) {
			continue
		}
		if to := row.field(config, row.Field); to.IsZero() {
			to.Set(row.field(&s.Config, row.Field))
		}
	}
}

// labels are the names of some settings in sentences.
var labels = map[string]string{
	"keep": "members to keep", "errors": "errors file", "max-record-bytes": "maximum record size", "nan": "value for NaN", "column": "list of arrays", "columns": "list of columns",
	"fetch": "list of files to fetch", "fetch-max-bytes": "maximum size of fetched files",
}

// Difference describes a change of something.
func Difference(what, before, now string) string {
	return fmt.Sprintf("%s was %s and is now %s", what, cmp.Or(before, "not set"), cmp.Or(now, "not set"))
}

// text returns the value of a setting, "" if it is not set.
func (s Setting) text(c *Config) string {
	field := s.field(c, s.Field)
	switch {
	case field.IsZero() || s.Unset != "" && field.String() == s.Unset:
		return ""
	case field.Kind() == reflect.String:
		return field.String()
	}
	data, _ := json.Marshal(field.Interface()) // never fails
	return string(data)
}

// compact returns JSON without spaces: job.json is indented.
func compact(data json.RawMessage) string {
	var to bytes.Buffer
	if json.Compact(&to, data) != nil {
		return ""
	}
	return to.String()
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
