package decode

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/gpurun/gpurun/chunk/input/csv"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

// Formats that gpurun does not read. An input in one of them would become a file of failed
// records, so it is refused before any work.

// foreign is the format of an input that is not JSON lines, and a command that converts
// it; %s in the command is the file.
type foreign struct{ format, convert string }

// magics are the first bytes of files that are not text.
var magics = []struct {
	magic string
	foreign
}{
	{"\x1f\x8b", foreign{"gzip-compressed", "zcat %s"}},
	{"\x28\xb5\x2f\xfd", foreign{"zstd-compressed", "zstdcat %s"}},
	{"\xfd7zXZ\x00", foreign{"xz-compressed", "xzcat %s"}},
	{"BZh", foreign{"bzip2-compressed", "bzcat %s"}},
	{"\x04\x22\x4d\x18", foreign{"lz4-compressed", "lz4cat %s"}},
	{"PK\x03\x04", foreign{"a zip archive", "unzip -p %s"}},
	{"\xff\xfe", foreign{"UTF-16 text", "iconv -f UTF-16 -t UTF-8 %s"}},
	{"\xfe\xff", foreign{"UTF-16 text", "iconv -f UTF-16 -t UTF-8 %s"}},
	{"{\x00", foreign{"UTF-16 text", "iconv -f UTF-16LE -t UTF-8 %s"}},
	{"\x00{", foreign{"UTF-16 text", "iconv -f UTF-16BE -t UTF-8 %s"}},
	{"ARROW1", foreign{"an Arrow file", ""}},
	{"ORC", foreign{"an ORC file", ""}},
	{"Obj\x01", foreign{"an Avro file", ""}},
	{"\x93NUMPY", foreign{"a NumPy array", ""}},
	{"\x89HDF", foreign{"an HDF5 file", ""}},
	{"SQLite format 3\x00", foreign{"an SQLite database", ""}},
}

// tarMagic is where the header of a tar archive's first file names the format.
const tarMagic = 257

// sniff returns the format of an input that starts with head, or nil if it may be JSON
// lines.
func sniff(head []byte) *foreign {
	if bytes.HasPrefix(head, []byte("PK\x03\x04")) && (bytes.Contains(head, []byte("[Content_Types].xml")) || bytes.Contains(head, []byte("opendocument"))) {
		return &foreign{"a spreadsheet or another office document", ""}
	}
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return &m.foreign
		}
	}
	if len(head) > tarMagic && bytes.HasPrefix(head[tarMagic:], []byte("ustar")) {
		return &foreign{"a tar archive", "tar -xOf %s"}
	}
	if csv.Match(head, false, ';') {
		return &foreign{"a table whose values are separated by semicolons", ""}
	}
	if csv.Match(head, false, '|') {
		return &foreign{"a table whose values are separated by |", ""}
	}
	lines := wholeLines(head)
	switch {
	case isDocument(lines, '['):
		return &oneArray
	case isDocument(lines, '{'):
		return &foreign{"JSON with one document over several lines", "jq -c . %s"}
	}
	return nil
}

var oneArray = foreign{"one JSON array", "jq -c '.[]' %s"}

// isArray reports whether a file is one line with an array of objects, as json.dump of a list
// writes it: its first bytes have no second line.
func isArray(head []byte, whole bool) bool {
	text := bytes.TrimSpace(bytes.TrimPrefix(head, []byte(byteOrderMark)))
	return isObjects(text) && bytes.IndexByte(text, '\n') < 0 && (whole || len(head) == format.SniffBytes)
}

// isObjects reports whether a line begins like an array of objects.
func isObjects(line []byte) bool {
	inside, isArray := bytes.CutPrefix(bytes.TrimPrefix(line, []byte(byteOrderMark)), []byte("["))
	return isArray && bytes.HasPrefix(bytes.TrimLeft(inside, " \t"), []byte("{"))
}

// wholeLines returns the lines of head, without blank ones and without the last, which
// may be incomplete.
func wholeLines(head []byte) (lines [][]byte) {
	head = bytes.TrimPrefix(head, []byte(byteOrderMark))
	for {
		line, rest, ended := bytes.Cut(head, []byte("\n"))
		if !ended {
			return lines
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			lines = append(lines, line)
		}
		head = rest
	}
}

// isDocument reports whether a document that starts with the bracket spans several
// lines: neither of the first two is a JSON value by itself.
func isDocument(lines [][]byte, bracket byte) bool {
	if len(lines) < 2 || lines[0][0] != bracket || json.Valid(lines[0]) {
		return false
	}
	if len(lines[0]) == 1 {
		return lines[1][0] == '{' && bracket == '[' || lines[1][0] == '"' && bracket == '{'
	}
	return bracket == '[' && lines[0][1] == '{' && bytes.HasSuffix(lines[0], []byte(","))
}

// refuse returns an error that names the input's format and, if known, a command that
// converts it.
func (f *foreign) refuse(what, path string) error {
	if f.convert == "" || path == "" {
		return fault.New(fault.Usage, "%s is %s; gpurun reads JSON lines, CSV, TSV and Parquet: convert it first", what, f.format)
	}
	return fault.New(fault.Usage, "%s is %s; gpurun reads JSON lines: convert it while piping: %s | gpurun run … -",
		what, f.format, strings.ReplaceAll(f.convert, "%s", path))
}
