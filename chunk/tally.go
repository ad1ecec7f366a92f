package chunk

import (
	"maps"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// Counts is the outcome of records. Records = Succeeded + Failed + Dropped.
type Counts struct {
	Records   int64 `json:"records"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Dropped   int64 `json:"dropped"`
}

// Add adds d to c.
func (c *Counts) Add(d Counts) {
	c.Records += d.Records
	c.Succeeded += d.Succeeded
	c.Failed += d.Failed
	c.Dropped += d.Dropped
}

// Tally is counts plus statistics on failed records by kind and by cause.
type Tally struct {
	Counts
	Kinds map[string]KindStats `json:"kinds,omitempty"`
	// Causes groups failed records by kind and shape of the message ("batch: no such file
	// '…'"). If there are more than maxCauses, the most frequent are kept.
	Causes map[string]KindStats `json:"causes,omitempty"`
}

const (
	// maxCauses limits the size of a tally, because all messages may differ.
	maxCauses = 64
	// Limits on an example and its detail, because every durable point writes them to the
	// journal again. failures.jsonl holds more.
	maxExample      = 2 << 10
	maxDetail       = 8 << 10
	maxCauseExample = 300
)

// FailureTally returns the tally of one failed record, whose mark has this kind and whose message is the
// example. Examples name its row, or its file if there are several; then the number of the record decides which example
// comes first.
func FailureTally(kind string, failed KindStats) Tally {
	message := failed.Example
	failed.Count = 1
	if failed.File == "" {
		failed.Record = 0
	}
	stats, cause := failed, failed
	stats.Example, stats.Code, stats.Value = cutEnd(message, maxExample), "", ""
	if n := len(stats.Detail); n > maxDetail { // the end of a traceback is the most useful
		stats.Detail = "…" + strings.ToValidUTF8(stats.Detail[n-maxDetail:], "")
	}
	cause.Example, cause.Detail = cutEnd(message, maxCauseExample), ""
	return Tally{
		Kinds:  map[string]KindStats{kind: stats},
		Causes: map[string]KindStats{kind + ": " + fault.Shape(message): cause},
	}
}

func cutEnd(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// KindStats counts the failed records of one kind or cause and keeps the first as an
// example.
type KindStats struct {
	Count   int64  `json:"count"`
	Example string `json:"example"`
	Detail  string `json:"detail,omitempty"`
	// Code and Value come from the example's fault, in a cause.
	Code  string `json:"code,omitempty"`
	Value string `json:"value,omitempty"`
	Line  int64  `json:"line"`
	// Rows: Line is the number of a row.
	Rows bool `json:"rows,omitempty"`
	// File and Record say where that is if there are several inputs.
	File   string `json:"file,omitempty"`
	Record int64  `json:"record,omitempty"`
}

// before reports whether the example comes first in the input.
func (s KindStats) before(t KindStats) bool {
	if s.File != "" && t.File != "" {
		return s.Record < t.Record
	}
	return s.Line < t.Line
}

// Add adds d to t. It keeps the example that comes first in the input, so that a report
// does not depend on which worker was faster.
func (t *Tally) Add(d Tally) {
	t.Counts.Add(d.Counts)
	t.Kinds = addStats(t.Kinds, d.Kinds)
	t.Causes = addStats(t.Causes, d.Causes)
	for len(t.Causes) > maxCauses {
		rarest := ""
		for name, stats := range t.Causes {
			if r := t.Causes[rarest]; rarest == "" || stats.Count < r.Count || stats.Count == r.Count && stats.Line > r.Line {
				rarest = name
			}
		}
		delete(t.Causes, rarest)
	}
}

func addStats(to, from map[string]KindStats) map[string]KindStats {
	if to == nil && len(from) > 0 {
		to = make(map[string]KindStats)
	}
	for name, more := range from {
		known, ok := to[name]
		if !ok || more.before(known) {
			more.Count += known.Count
			to[name] = more
			continue
		}
		known.Count += more.Count
		to[name] = known
	}
	return to
}

// Clone returns an independent copy.
func (t Tally) Clone() Tally {
	t.Kinds, t.Causes = maps.Clone(t.Kinds), maps.Clone(t.Causes)
	return t
}
