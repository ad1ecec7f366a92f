package chunk

import (
	"hash/crc32"
	"maps"
	"os"
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

// maxCauses limits the size of a tally, because all messages may differ.
const (
	maxCauses       = 64
	maxCauseExample = 300
)

// FailureTally returns the tally of one failed record.
func FailureTally(kind fault.Kind, message, detail string, line int64) Tally {
	stats := KindStats{Count: 1, Example: cutEnd(message, maxExample), Detail: detail, Line: line}
	if n := len(stats.Detail); n > maxDetail { // the end of a traceback is the most useful
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

// KindStats counts the failed records of one kind or cause and keeps the first as an
// example.
type KindStats struct {
	Count   int64  `json:"count"`
	Example string `json:"example"`
	Detail  string `json:"detail,omitempty"`
	Line    int64  `json:"line"`
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
		if !ok || more.Line < known.Line {
			known.Example, known.Detail, known.Line = more.Example, more.Detail, more.Line
		}
		known.Count += more.Count
		to[name] = known
	}
	return to
}

// clone returns an independent copy.
func (t Tally) clone() Tally {
	t.Kinds, t.Causes = maps.Clone(t.Kinds), maps.Clone(t.Causes)
	return t
}

// Place is where a line starts in its file.
type Place struct {
	Offset int64 `json:"offset"`
	Line   int64 `json:"line"`
}

// Segment is a finished run of records: the records First..First+Records of the input, and
// the part that holds their results.
type Segment struct {
	First int64 `json:"first"`
	// Start is where the first record is, Next where the record after the last one is: the
	// rest of the chunk begins there.
	Start Place `json:"start"`
	Next  Place `json:"next"`
	// Part is the prefix of its file names in the folder of parts.
	Part string `json:"part"`
	// Files are its files: results, errors, failures.
	Files [partFiles]FileSum `json:"files"`
	// Lines is the number of lines in the results.
	Lines int64 `json:"lines"`
	// Inner: it ends inside a chunk of the source.
	Inner bool  `json:"inner,omitempty"`
	Tally Tally `json:"tally"`
}

// Run is the sum of consecutive segments.
type Run struct {
	First, Records, Lines int64
	Sum                   FileSum // of the results
	Inner                 bool    // it ends inside a chunk of the source
}

func (s Segment) run() Run {
	return Run{First: s.First, Records: s.Tally.Records, Lines: s.Lines, Sum: s.Files[results], Inner: s.Inner}
}

// join appends the next run to r.
func (r Run) join(next Run) Run {
	r.Records += next.Records
	r.Lines += next.Lines
	r.Sum = r.Sum.join(next.Sum)
	r.Inner = next.Inner
	return r
}

// runs merges segments into one run per chunk of the source.
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

// FileSum is the expected size and checksum of a file.
type FileSum struct {
	Bytes int64 `json:"bytes"`
	// CRC is the CRC-32C of all bytes.
	CRC uint32 `json:"crc"`
}

// add adds bytes that follow.
func (s *FileSum) add(p []byte) {
	s.Bytes += int64(len(p))
	s.CRC = crc32.Update(s.CRC, castagnoli, p)
}

// Failure is one line of failures.jsonl: details on a failed record beyond its mark.
type Failure struct {
	// At is the record's position in the results, or the position it would have had if it
	// had not failed. Size is how many bytes of the results it takes: 0 if failed records
	// go to a separate file.
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
	// Replaced is the _error that the record had in the input, if another has replaced it.
	Replaced string `json:"replaced,omitempty"`
}

// The files of a part: results, failed records if they go to a separate file, and lines of
// failures.jsonl. partFiles is their number. An empty file is not created.
const (
	results = iota
	failedRecords
	failures
	partFiles
)

var suffixes = [partFiles]string{".out", ".err", ".failures"}

// modes are the modes of the finished files.
var modes = [partFiles]os.FileMode{PublicMode, PublicMode, PrivateMode}
