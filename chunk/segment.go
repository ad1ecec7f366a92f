package chunk

import (
	"hash/crc32"
	"maps"
	"os"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// Counts is what became of records. Records = Succeeded + Failed + Dropped.
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

// Tally is counts, with what is known of the failed records by kind and by cause.
type Tally struct {
	Counts
	Kinds map[string]KindStats `json:"kinds,omitempty"`
	// Causes are the failed records by kind and shape of the message ("batch: no
	// such file '…'"). Of more than maxCauses the most frequent are kept.
	Causes map[string]KindStats `json:"causes,omitempty"`
}

// maxCauses bounds what a tally keeps: messages may all be different.
const (
	maxCauses       = 64
	maxCauseExample = 300
)

// FailureTally is the tally of one failed record.
func FailureTally(kind fault.Kind, message, detail string, line int64) Tally {
	stats := KindStats{Count: 1, Example: cutEnd(message, maxExample), Detail: detail, Line: line}
	if n := len(stats.Detail); n > maxDetail { // the end of a traceback says most
		stats.Detail = "…" + strings.ToValidUTF8(stats.Detail[n-maxDetail:], "")
	}
	cause := KindStats{Count: 1, Example: cutEnd(message, maxCauseExample), Line: line}
	return Tally{
		Kinds:  map[string]KindStats{kind.String(): stats},
		Causes: map[string]KindStats{kind.String() + ": " + fault.Shape(message): cause},
	}
}

func cutEnd(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// KindStats is the failed records of one kind, or of one cause, with the first of them.
type KindStats struct {
	Count   int64  `json:"count"`
	Example string `json:"example"`
	Detail  string `json:"detail,omitempty"`
	Line    int64  `json:"line"`
}

// Add adds d to t. The example that comes first in the input stays, so that a
// report does not depend on which worker was faster.
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
		if !ok || more.Line < known.Line {
			known.Example, known.Detail, known.Line = more.Example, more.Detail, more.Line
		}
		known.Count += more.Count
		to[name] = known
	}
	return to
}

// clone is a copy that nobody else adds to.
func (t Tally) clone() Tally {
	t.Kinds, t.Causes = maps.Clone(t.Kinds), maps.Clone(t.Causes)
	return t
}

// Place is where a line starts in its file.
type Place struct {
	Offset int64 `json:"offset"`
	Line   int64 `json:"line"`
}

// Segment is a finished run of records: the records First..First+Records of the
// input, and the part that holds their results.
type Segment struct {
	First int64 `json:"first"`
	// Start is where the first of them stands, Next where the one behind the
	// last does: what is left of a chunk begins there.
	Start Place `json:"start"`
	Next  Place `json:"next"`
	// Part is what the names of its files begin with, in the folder of parts.
	Part string `json:"part"`
	// Files are its files: results, errors, failures.
	Files [streams]FileSum `json:"files"`
	// Lines are those of the results.
	Lines int64 `json:"lines"`
	// Inner: it ends inside the chunk that the source gave.
	Inner bool  `json:"inner,omitempty"`
	Tally Tally `json:"tally"`
}

// Run is what consecutive segments add up to.
type Run struct {
	First, Records, Lines int64
	Sum                   FileSum // of the results
	Inner                 bool    // it ends inside the chunk that the source gave
}

func (s Segment) run() Run {
	return Run{First: s.First, Records: s.Tally.Records, Lines: s.Lines, Sum: s.Files[results], Inner: s.Inner}
}

// join puts the run that follows behind r.
func (r Run) join(next Run) Run {
	r.Records += next.Records
	r.Lines += next.Lines
	r.Sum = r.Sum.join(next.Sum)
	r.Inner = next.Inner
	return r
}

// runs are what segments add up to, for each chunk that the source gave.
func runs(segments []Segment) (all []Run) {
	for _, s := range segments {
		if last := len(all) - 1; last >= 0 && all[last].Inner {
			all[last] = all[last].join(s.run())
			continue
		}
		all = append(all, s.run())
	}
	return all
}

// FileSum is what a file must hold to be believed.
type FileSum struct {
	Bytes int64 `json:"bytes"`
	// CRC is the CRC-32C of all bytes.
	CRC uint32 `json:"crc"`
}

// add takes bytes that come behind the others.
func (s *FileSum) add(p []byte) {
	s.Bytes += int64(len(p))
	s.CRC = crc32.Update(s.CRC, castagnoli, p)
}

// Failure is one line of failures.jsonl: what is known of a failed record beside
// its mark.
type Failure struct {
	// At is where the record stands, or would stand if it had not failed, in the
	// results, and Size how many bytes of them it has: 0 where failed records
	// have a file of their own.
	At   int64 `json:"-"`
	Size int64 `json:"size"`

	Record  int64      `json:"record"`
	Line    int64      `json:"line"`
	File    string     `json:"file"`
	Offset  int64      `json:"offset"`
	Length  int64      `json:"length"`
	CRC32C  CRC        `json:"crc32c"`
	Kind    fault.Kind `json:"kind"`
	Message string     `json:"message"`
	Step    string     `json:"step,omitempty"`
	Detail  string     `json:"detail,omitempty"`
	Device  string     `json:"device,omitempty"`
	// Replaced is the _error that the record came in with, where another stands in
	// its place now.
	Replaced string `json:"replaced,omitempty"`
}

// The files of a part: results, failed records where they have a file of their
// own, and lines of failures.jsonl. A file that would be empty is not made.
const (
	results = iota
	failedRecords
	failures
	streams
)

var suffixes = [streams]string{".out", ".err", ".failures"}

// modes are those of the finished files.
var modes = [streams]os.FileMode{PublicMode, PublicMode, PrivateMode}
