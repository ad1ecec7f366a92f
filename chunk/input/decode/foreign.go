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
// it; %s in the command is the file. files, if set, is a command that extracts the files of an
// archive.
type foreign struct{ format, convert, files string }

// magics are the first bytes of files that are not text.
var magics = []struct {
	magic string
	foreign
}{
	{"\x1f\x8b", foreign{format: "gzip-compressed", convert: "zcat %s"}},
	{"\x28\xb5\x2f\xfd", foreign{format: "zstd-compressed", convert: "zstdcat %s"}},
	{"\xfd7zXZ\x00", foreign{format: "xz-compressed", convert: "xzcat %s"}},
	{"BZh", foreign{format: "bzip2-compressed", convert: "bzcat %s"}},
	{"\x04\x22\x4d\x18", foreign{format: "lz4-compressed", convert: "lz4cat %s"}},
	{"\xff\xfe", foreign{format: "UTF-16 text", convert: "iconv -f UTF-16 -t UTF-8 %s"}},
	{"\xfe\xff", foreign{format: "UTF-16 text", convert: "iconv -f UTF-16 -t UTF-8 %s"}},
	{"{\x00", foreign{format: "UTF-16 text", convert: "iconv -f UTF-16LE -t UTF-8 %s"}},
	{"\x00{", foreign{format: "UTF-16 text", convert: "iconv -f UTF-16BE -t UTF-8 %s"}},
	{"FEA1", foreign{format: "a Feather file of version 1"}},
	{"ORC", foreign{format: "an ORC file"}},
	{"Obj\x01", foreign{format: "an Avro file"}},
	{"\x93NUMPY", foreign{format: "a NumPy array"}},
	{"\x89HDF", foreign{format: "an HDF5 file"}},
	{"SQLite format 3\x00", foreign{format: "an SQLite database"}},
}

// tarMagic is where the header of a tar archive's first file names the format.
const tarMagic = 257

// sniff returns the format of an input that starts with head, or nil if it may be JSON
// lines.
func sniff(head []byte) *foreign {
	if bytes.HasPrefix(head, []byte("PK\x03\x04")) && (bytes.Contains(head, []byte("[Content_Types].xml")) || bytes.Contains(head, []byte("opendocument"))) {
		return &foreign{format: "a spreadsheet or another office document"}
	}
	if bytes.HasPrefix(head, []byte("PK\x03\x04")) && len(head) > zipName {
		name := head[zipName:min(len(head), zipName+(int(head[26])|int(head[27])<<8))]
		return archive("a zip archive", "unzip", "unzip -p %s", string(name))
	}
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return &m.foreign
		}
	}
	if len(head) > tarMagic && bytes.HasPrefix(head[tarMagic:], []byte("ustar")) {
		return archive("a tar archive", "tar -xf", "tar -xOf %s", string(bytes.TrimRight(head[:100], "\x00")))
	}
	if csv.Match(head, false, ';') {
		return &foreign{format: "a table whose values are separated by semicolons"}
	}
	if csv.Match(head, false, '|') {
		return &foreign{format: "a table whose values are separated by |"}
	}
	lines := wholeLines(head)
	switch {
	case isDocument(lines, '['):
		return &oneArray
	case isDocument(lines, '{'):
		return &foreign{format: "JSON with one document over several lines", convert: "jq -c . %s"}
	}
	return nil
}

// zipName is where the name of the first file begins in a zip archive; its length is before it.
const zipName = 30

// archive returns the format of an archive whose first file has a name. Records can be piped; of
// anything else, such as images, records name the files.
func archive(format, extract, pipe, first string) *foreign {
	for _, end := range []string{".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".gz", ".zst", ".parquet", ".arrow"} {
		if strings.HasSuffix(strings.ToLower(first), end) {
			return &foreign{format: format, convert: pipe}
		}
	}
	return &foreign{format: format, files: extract}
}

var oneArray = foreign{format: "one JSON array", convert: "jq -c '.[]' %s"}

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
	if f.files != "" && path != "" {
		return fault.Archive.New("%s is %s; gpurun reads lines, not files of other kinds: extract it (%s %s) and list its files, one record each: "+
			"find . -name '*.jpg' | jq -Rc '{path: .}' > in.jsonl", what, f.format, f.files, path)
	}
	if f.convert == "" || path == "" {
		return fault.UnknownFormat.New("%s is %s; gpurun reads JSON lines, CSV, TSV, Parquet and Arrow: convert it first", what, f.format)
	}
	return fault.UnknownFormat.New("%s is %s; gpurun reads JSON lines: convert it while piping: %s | gpurun run … -",
		what, f.format, strings.ReplaceAll(f.convert, "%s", path))
}
