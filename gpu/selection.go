package gpu

import (
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// selectionForms lists the valid forms, for error messages.
const selectionForms = "write all, indices (0,2 or 0-3), UUIDs (GPU-… or MIG-…), MIG instances (2:0), or cpu:4"

// maxCPUs bounds cpu:N: each is a process, and more is most likely a typo.
const maxCPUs = 1024

// Selection is what the user asked for with --gpus. Its zero value is "all".
type Selection struct {
	terms []term
	cpus  int // > 0: cpu:N, and no terms
}

// term is one comma-separated entry: a range of indices, a MIG instance, or a name.
type term struct {
	low, high int    // with name == ""
	part      int    // of GPU low: 1 for its MIG instance 0, and so on; 0 for the whole GPU
	name      string // "GPU-…" or "MIG-…"
}

func (t term) String() string {
	switch {
	case t.name != "":
		return t.name
	case t.part > 0:
		return strconv.Itoa(t.low) + ":" + strconv.Itoa(t.part-1)
	case t.low == t.high:
		return strconv.Itoa(t.low)
	default:
		return strconv.Itoa(t.low) + "-" + strconv.Itoa(t.high)
	}
}

// IsAll reports whether no device was named, so that all devices are selected.
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
// UUIDs (a unique prefix is enough), MIG names and MIG instances (2:0 is instance 0 of
// GPU 2), separated by commas.
//
// It does not look at the machine: Select checks whether the devices exist. Every error
// is a fault.Usage that does not repeat the whole value.
func ParseSelection(s string) (Selection, error) {
	s = strings.TrimSpace(s)
	switch {
	case s == "":
		return Selection{}, selectionError("the selection is empty: " + selectionForms)
	case strings.EqualFold(s, "all"):
		return Selection{}, nil
	case hasPrefix(s, "cpu") && !strings.Contains(s, ","):
		_, count, _ := strings.Cut(s, ":")
		n, ok := parseIndex(count)
		if !ok || n < 1 || n > maxCPUs {
			return Selection{}, selectionError("cpu needs a number of workers from 1 to " + strconv.Itoa(maxCPUs) + ", as in cpu:4")
		}
		return Selection{cpus: n}, nil
	}
	var sel Selection
	for entry := range strings.SplitSeq(s, ",") {
		t, problem := parseTerm(strings.TrimSpace(entry))
		if problem != "" {
			return Selection{}, selectionError(problem)
		}
		for _, before := range sel.terms {
			switch {
			case before == t:
				return Selection{}, selectionError(t.String() + " is named twice: name each device once")
			case overlap(before, t):
				return Selection{}, selectionError(before.String() + " and " + t.String() + " name a GPU twice: name each once")
			}
		}
		sel.terms = append(sel.terms, t)
	}
	return sel, nil
}

func selectionError(problem string) error { return fault.UnknownDevice.New("%s", problem) }

// hasPrefix ignores case.
func hasPrefix(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// parseTerm returns the term, or the problem with it.
func parseTerm(entry string) (t term, problem string) {
	switch {
	case entry == "":
		return term{}, "an entry between commas is empty: write indices or UUIDs, as in 0,2"
	case strings.EqualFold(entry, "all"), hasPrefix(entry, "cpu"):
		return term{}, entry + " cannot be combined with other devices: select it alone"
	case hasPrefix(entry, "GPU-"):
		digits := entry[len("GPU-"):]
		if digits == "" || strings.Trim(digits, "0123456789abcdefABCDEF-") != "" {
			return term{}, strconv.Quote(entry) + " is not the UUID of a GPU (nvidia-smi -L lists them)"
		}
		return term{name: "GPU-" + digits}, ""
	case hasPrefix(entry, "MIG-"):
		// MIG-<uuid>, or MIG-GPU-<uuid>/<instance>/<compute instance> of drivers before 470.
		name := entry[len("MIG-"):]
		if name == "" || strings.Trim(name, "0123456789abcdefABCDEFGPU-/") != "" {
			return term{}, strconv.Quote(entry) + " is not the UUID of a MIG instance (nvidia-smi -L lists them)"
		}
		return term{name: "MIG-" + name}, ""
	}
	if gpu, part, ok := strings.Cut(entry, ":"); ok {
		if t, ok := parsePart(gpu, part); ok {
			return t, ""
		}
	}
	return parseRange(entry)
}

// parsePart reads a MIG instance: 2:0.
func parsePart(gpu, part string) (term, bool) {
	index, ok := parseIndex(gpu)
	number, ok2 := parseIndex(part)
	return term{low: index, high: index, part: number + 1}, ok && ok2 && number < maxParts
}

// maxParts is more than the instances of any GPU.
const maxParts = 1024

func parseRange(entry string) (t term, problem string) {
	low, high, isRange := strings.Cut(entry, "-")
	if !isRange {
		high = low
	}
	first, ok := parseIndex(low)
	last, ok2 := parseIndex(high)
	switch {
	case !ok || !ok2:
		return term{}, notIndex(entry)
	case last < first:
		return term{}, "the range " + entry + " runs backwards: write the lower index first"
	}
	return term{low: first, high: last}, ""
}

// notIndex explains what is wrong with an entry of no known form.
func notIndex(entry string) string {
	quoted := strconv.Quote(entry)
	bare := entry
	for _, prefix := range []string{"cuda", "nvidia", "gpu", ":", " "} {
		if hasPrefix(bare, prefix) {
			bare = bare[len(prefix):]
		}
	}
	_, isIndex := parseIndex(bare)
	switch {
	case isIndex && bare != entry:
		return quoted + " is not an index: write " + bare
	case strings.Trim(entry, "0123456789 ;|") == "" && strings.Trim(entry, "0123456789") != "":
		return quoted + " is not an index: separate several by commas, as in " + strings.Join(strings.FieldsFunc(entry, func(r rune) bool { return r < '0' || r > '9' }), ",")
	}
	return quoted + " is neither an index nor a UUID: " + selectionForms
}

func overlap(a, b term) bool {
	if a.name != "" || b.name != "" {
		return strings.EqualFold(a.name, b.name)
	}
	return a.low <= b.high && b.low <= a.high && (a.part == 0 || b.part == 0 || a.part == b.part)
}

// parseIndex reads plain digits: no sign, no spaces, nothing after them.
func parseIndex(s string) (int, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}
