package encode

import (
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// Format is how an output stores its lines. The zero value is not a format.
type Format struct {
	// Name is jsonl, jsonl.gz, jsonl.zst, parquet or arrow, which is also the ending of file names.
	Name string
	// Codec encodes units; nil for plain lines and for a table.
	Codec Codec
	// Table: the results are rows of typed columns. Their units are not encoded by a Codec, but by the
	// format of this name in package table.
	Table bool
	// UnitBytes is the size of a unit before encoding: it ends with the first line that brings it
	// there. The row groups of a table are larger, for its readers.
	UnitBytes int64
	// pack is the last ending of its file names, if that names a compression.
	pack string
	// ending is another ending of its file names.
	ending string
}

// formats are those that gpurun writes. A format of an object store or a table belongs here
// too.
var formats = []Format{
	{Name: "jsonl", UnitBytes: 4 << 20},
	{Name: "jsonl.gz", Codec: gzipCodec{}, UnitBytes: 4 << 20, pack: ".gz"},
	{Name: "jsonl.zst", Codec: zstdCodec{}, UnitBytes: 4 << 20, pack: ".zst"},
	{Name: "parquet", Table: true, UnitBytes: 64 << 20, ending: ".pq"},
	{Name: "arrow", Table: true, UnitBytes: 16 << 20, ending: ".feather"},
}

// Lines is the format of plain JSON lines.
func Lines() Format { return formats[0] }

// Ending returns how the format's file names end.
func (f Format) Ending() string { return "." + f.Name }

// Encodes reports whether the format differs from plain lines.
func (f Format) Encodes() bool { return f.Codec != nil || f.Table }

// EncodeNothing writes what an output without lines consists of.
func (f Format) EncodeNothing(out io.Writer) error {
	if f.Codec == nil {
		return nil
	}
	return f.Codec.Encode(out, strings.NewReader(""), 0)
}

// Unencoded returns the size of lines before they were encoded, as reports have it: 0 for an
// output that does not encode lines.
func (f Format) Unencoded(bytes int64) int64 {
	if f.Codec == nil {
		return 0
	}
	return bytes
}

// Length returns the size of lines before encoding, given the size of the file and their own.
func (f Format) Length(bytes, unencoded int64) int64 {
	if f.Codec == nil {
		return bytes
	}
	return unencoded
}

// Names lists the names of all formats.
func Names() (names []string) {
	for _, f := range formats {
		names = append(names, f.Name)
	}
	return names
}

// Endings lists the endings of the file names that gpurun writes, for messages.
func Endings() string { return "." + strings.Join(Names(), ", .") }

// ByName returns the format of that name; "" is plain lines.
func ByName(name string) (Format, error) {
	if name == "" {
		return Lines(), nil
	}
	for _, f := range formats {
		if f.Name == name {
			return f, nil
		}
	}
	return Format{}, fault.OutputFormat.New("gpurun does not write the format %q; it writes %s", name, strings.Join(Names(), ", "))
}

// foreign are endings of formats that gpurun does not write. Readers would reject an output
// with such a name. .json is not among them: files of JSON lines often have it.
var foreign = []string{
	".tgz", ".bgz", ".zstd", ".bz2", ".xz", ".lz4", ".br", ".zip", ".tar", ".7z", ".snappy",
	".csv", ".tsv", ".arrows", ".ipc", ".orc", ".avro",
	".npy", ".npz", ".h5", ".hdf5", ".pt", ".safetensors", ".pkl", ".pickle", ".tfrecord",
	".xls", ".xlsx", ".sqlite", ".db", ".duckdb", ".xml", ".yaml", ".yml",
}

// ByPath returns the format that a file name implies. named is false if it implies none:
// then the format is plain lines unless another is chosen. A name of a format that gpurun
// does not write is an error; what is what the file is for.
func ByPath(what, path string) (f Format, named bool, err error) {
	path = strings.ToLower(strings.TrimRight(path, "/"))
	ending := filepath.Ext(path)
	inner := ending
	f = Lines()
	for _, candidate := range formats {
		if candidate.pack != "" && candidate.pack == ending {
			f, named, inner = candidate, true, filepath.Ext(strings.TrimSuffix(path, ending))
		}
	}
	table := slices.IndexFunc(formats, func(f Format) bool { return f.Table && (f.Ending() == inner || f.ending == inner) })
	if table >= 0 && !named {
		return formats[table], true, nil
	}
	if table >= 0 || slices.Contains(foreign, inner) || named && slices.ContainsFunc(formats, func(f Format) bool { return f.pack == inner && inner != "" }) {
		if named {
			ending = inner + ending
		}
		if ending == ".npy" {
			return f, true, fault.OutputFormat.New("the name of the %s %s ends in .npy; an array holds one column of the results, next to an output that gpurun writes: %s", what, path, Endings()).
				Set("column NAME=" + path)
		}
		return f, true, fault.OutputFormat.New("the name of the %s %s ends in %s, a format that gpurun does not write; it writes %s",
			what, path, ending, Endings())
	}
	return f, named || ending == ".jsonl", nil
}

// Choose returns the format of an output from its path and the format that the user chose,
// which may be empty. A name that contradicts the choice is an error.
func Choose(path, chosen string) (Format, error) {
	implied, named, err := ByPath("output", path)
	if err != nil {
		return implied, err
	}
	if chosen == "" {
		return implied, nil
	}
	f, err := ByName(chosen)
	if err == nil && named && f.Name != implied.Name {
		return f, fault.OutputFormat.New("the output %s would contain %s, but its name says %s; name it *%s", path, f.Name, implied.Name, f.Ending())
	}
	return f, err
}
