package kerneltest

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/gpurun/gpurun/plugins"
)

// answer is a copy of the result for one record.
type answer struct {
	verdict plugins.Verdict
	values  []value
	message string
}

// value is a line, or one value of a column, as JSON.
type value struct {
	name string // of the column; empty for a line
	json string
}

func (v value) column() string {
	if v.name == "" {
		return ""
	}
	return fmt.Sprintf(" in column %q", v.name)
}

func answers(results *plugins.Results) []answer {
	list := make([]answer, results.Len())
	for i := range list {
		result := results.At(i)
		a := answer{verdict: result.Verdict, message: strings.Clone(result.Message)}
		switch result.Verdict {
		case plugins.Lines:
			for _, line := range result.Lines {
				a.values = append(a.values, value{json: string(line)})
			}
		case plugins.Columns:
			for _, column := range results.ColumnList() {
				a.values = append(a.values, value{name: column.Name, json: string(column.AppendValue(nil, i))})
			}
		}
		list[i] = a
	}
	return list
}

// String formats the answer for a message.
func (a answer) String() string {
	switch a.verdict {
	case plugins.Failed:
		return fmt.Sprintf("failed (%s)", short(a.message))
	case plugins.Lines, plugins.Columns:
		texts := make([]string, len(a.values))
		for i, v := range a.values {
			texts[i] = strings.TrimPrefix(v.name+" "+short(v.json), " ")
		}
		return strings.Join(texts, ", ")
	}
	return a.verdict.String()
}

// compare fails at the first record whose two answers differ.
func (t trial) compare(records []string, first, second []answer, firstWhen, secondWhen string, advice ...Advice) {
	for i := range records {
		if !same(first[i], second[i], t.Tolerance) {
			f := newFailure("", "the record %s gave\n  %s: %s\n  %s: %s", short(records[i]), firstWhen, first[i], secondWhen, second[i])
			f.Advice = advice
			t.stop(f)
		}
	}
}

// same compares two answers. It ignores the message of a failure, which may contain an
// address or a batch number.
func same(a, b answer, tolerance float64) bool {
	if a.verdict != b.verdict || len(a.values) != len(b.values) {
		return false
	}
	for i := range a.values {
		if a.values[i].name != b.values[i].name || !sameJSON(a.values[i].json, b.values[i].json, tolerance) {
			return false
		}
	}
	return true
}

func sameJSON(a, b string, tolerance float64) bool {
	if a == b {
		return true
	}
	var left, right any
	if json.Unmarshal([]byte(a), &left) != nil || json.Unmarshal([]byte(b), &right) != nil {
		return false
	}
	return near(left, right, tolerance, smallest)
}

// smallest is the scale below which differences of single numbers count no less.
const smallest = 1e-6

// near compares decoded JSON. Numbers may differ by the tolerance times their size, or times
// the scale of the list that they are in: the error of a vector's small components is that
// of its large ones.
func near(a, b any, tolerance, scale float64) bool {
	switch a := a.(type) {
	case float64:
		b, ok := b.(float64)
		return ok && (a == b || math.Abs(a-b) <= tolerance*max(math.Abs(a), math.Abs(b), scale))
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		scale := max(scale, largest(a), largest(b))
		for i := range a {
			if !near(a[i], b[i], tolerance, scale) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key := range a {
			other, ok := b[key]
			if !ok || !near(a[key], other, tolerance, smallest) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// largest is the largest absolute value of the numbers in a list.
func largest(list []any) (most float64) {
	for _, v := range list {
		if number, ok := v.(float64); ok {
			most = max(most, math.Abs(number))
		}
	}
	return most
}

// short truncates a text for a message.
func short(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
