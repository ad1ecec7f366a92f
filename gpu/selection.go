package gpu

import (
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// selectionForms is part of every complaint about a selection.
const selectionForms = "the forms are all, 0,2, 0-3, GPU-<uuid>, MIG-<uuid> (a comma between several) or cpu:4"

// maxCPUs bounds cpu:N: more is a slip of the finger, and each is a process.
const maxCPUs = 1024

// Selection is what the user asked for with --gpus. Its zero value is "all".
type Selection struct {
	terms []term
	cpus  int // > 0: cpu:N, and no terms
}

// term is one entry between commas: a range of indices, or a name.
type term struct {
	low, high int    // with name == ""
	name      string // "GPU-…" or "MIG-…"
}

func (t term) String() string {
	switch {
	case t.name != "":
		return t.name
	case t.low == t.high:
		return strconv.Itoa(t.low)
	default:
		return strconv.Itoa(t.low) + "-" + strconv.Itoa(t.high)
	}
}

// IsAll reports whether no device was named: whatever there is will do.
func (s Selection) IsAll() bool { return len(s.terms) == 0 && s.cpus == 0 }

// String returns the selection in the form ParseSelection reads.
func (s Selection) String() string {
	if s.cpus > 0 {
		return "cpu:" + strconv.Itoa(s.cpus)
	}
	if len(s.terms) == 0 {
		return "all"
	}
	parts := make([]string, len(s.terms))
	for i, t := range s.terms {
		parts[i] = t.String()
	}
	return strings.Join(parts, ",")
}

// ParseSelection reads the value of --gpus: "all", "cpu:4", or indices, ranges,
// UUIDs (a unique beginning is enough) and MIG names separated by commas.
//
// It does not look at the machine: whether those devices exist is found out by
// Select. Every error is a fault.Usage.
func ParseSelection(s string) (Selection, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return Selection{}, selectionError(s, "it is empty")
	}
	if s == "all" {
		return Selection{}, nil
	}
	if strings.HasPrefix(s, "cpu") && !strings.Contains(s, ",") {
		count, _ := strings.CutPrefix(s, "cpu:")
		n, ok := parseIndex(count)
		if !ok || n < 1 || n > maxCPUs {
			return Selection{}, selectionError(s, "cpu: needs a number of workers from 1 to "+strconv.Itoa(maxCPUs))
		}
		return Selection{cpus: n}, nil
	}
	var sel Selection
	for entry := range strings.SplitSeq(s, ",") {
		t, problem := parseTerm(strings.TrimSpace(entry))
		if problem != "" {
			return Selection{}, selectionError(s, problem)
		}
		for _, before := range sel.terms {
			if overlap(before, t) {
				return Selection{}, selectionError(s, "a device is named twice, in "+before.String()+" and "+t.String())
			}
		}
		sel.terms = append(sel.terms, t)
	}
	return sel, nil
}

func selectionError(s, problem string) error {
	return fault.New(fault.Usage, "--gpus %q: %s; %s", s, problem, selectionForms)
}

// parseTerm returns the term, or what is wrong with it.
func parseTerm(entry string) (t term, problem string) {
	low, high, isRange := strings.Cut(entry, "-")
	switch {
	case entry == "":
		return term{}, "an entry is empty"
	case entry == "all", strings.HasPrefix(entry, "cpu"):
		return term{}, strconv.Quote(entry) + " does not go together with others"
	case strings.HasPrefix(entry, "GPU-"):
		if len(entry) == len("GPU-") || strings.Trim(entry[len("GPU-"):], "0123456789abcdefABCDEF-") != "" {
			return term{}, strconv.Quote(entry) + " is no UUID of a GPU"
		}
		return term{name: entry}, ""
	case isMIG(entry):
		// MIG-<uuid>, or MIG-GPU-<uuid>/<instance>/<compute instance> of drivers before 470.
		if strings.Trim(entry[len("MIG-"):], "0123456789abcdefABCDEFGPU-/") != "" || len(entry) == len("MIG-") {
			return term{}, strconv.Quote(entry) + " is no name of a MIG instance"
		}
		return term{name: entry}, ""
	}
	first, ok := parseIndex(low)
	if !isRange {
		high = low
	}
	last, ok2 := parseIndex(high)
	switch {
	case !ok || !ok2:
		return term{}, strconv.Quote(entry) + " is not understood"
	case last < first:
		return term{}, "the range " + entry + " runs backwards"
	}
	return term{low: first, high: last}, ""
}

func overlap(a, b term) bool {
	if a.name != "" || b.name != "" {
		return strings.EqualFold(a.name, b.name)
	}
	return a.low <= b.high && b.low <= a.high
}

// parseIndex reads plain digits: no sign, no blanks, nothing behind.
func parseIndex(s string) (int, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}
