package fields

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins"
)

// Lengths that mark a value as null or missing; see runner/fields.py.
const (
	NullLength    = math.MaxUint32
	missingLength = math.MaxUint32 - 1
)

// Most is the number of members that jsonline can look for in one scan.
const Most = 64

// Extractor extracts members from the records of a batch and lays them out as
// columns. It reuses its memory and is not safe for concurrent use.
type Extractor struct {
	names  []string
	files  []string // the names under which files were fetched
	wanted *jsonline.Wanted
	info   jsonline.Info
	values [][]byte // for each name, one per record; nil if missing
	scan   numbers
}

// Layout is one member of all records, as it will be written.
type Layout struct {
	name    string
	values  [][]byte
	kind    string
	width   int
	missing int
	bytes   int // of data, at most
	numbers []byte
}

// Read finds the members in every record: those that the worker has located, or else all of
// them in one scan. Files take precedence over a member of that name.
func (e *Extractor) Read(batch plugins.Batch, names []string) {
	if e.wanted == nil || !slices.Equal(e.names, names) {
		e.names, e.wanted = slices.Clone(names), jsonline.Want(names...)
	}
	count := batch.Len()
	e.values = slices.Grow(e.values[:0], count*len(names))[:count*len(names)]
	e.files = batch.FetchedNames()
	scans := slices.ContainsFunc(names, func(name string) bool { return !batch.Found(name) && !e.isFile(name) })
	for i := range count {
		record := batch.Record(i)
		// The worker has validated the record; one that is not an object has no members.
		valid := scans && e.wanted.Scan(record, &e.info) == nil
		for k, name := range names {
			var value []byte
			if !scans {
				value, _ = batch.Member(i, name)
			} else if span := e.info.Spans[k]; valid && span.Present() {
				value = record[span.ValueStart:span.ValueEnd]
			}
			e.values[k*count+i] = value
		}
	}
	for k, name := range names {
		if !e.isFile(name) {
			continue
		}
		for i := range count {
			e.values[k*count+i], _ = batch.Fetched(i, name)
		}
	}
}

// isFile reports whether files were fetched under a name.
func (e *Extractor) isFile(name string) bool { return slices.Contains(e.files, name) }

// Layouts chooses how to write each member.
func (e *Extractor) Layouts(count int) []Layout {
	list := make([]Layout, len(e.names))
	e.scan.reset()
	for k, name := range e.names {
		values := e.values[k*count : (k+1)*count]
		if e.isFile(name) {
			list[k] = fileLayout(name, values)
		} else {
			list[k] = e.layout(name, values)
		}
	}
	return list
}

// layout picks the narrowest kind that holds all values.
func (e *Extractor) layout(name string, values [][]byte) Layout {
	l := Layout{name: name, values: values}
	var seen [128]bool // first bytes of values
	for _, value := range values {
		if value == nil {
			l.missing++
			continue
		}
		l.bytes += len(value)
		seen[kindOf(value[0])] = true
	}
	only := func(kinds ...byte) bool {
		for kind, is := range seen {
			if is && !slices.Contains(kinds, byte(kind)) {
				return false
			}
		}
		return true
	}
	switch {
	case seen['"'] && only('"', 'n'):
		l.kind = "string"
	case l.missing > 0:
		l.kind = "json"
	case only('t'):
		l.kind = "bool"
	case only('0') || only('['):
		l.kind, l.width, l.numbers = e.scan.read(values)
	}
	if l.kind == "" {
		l.kind = "json"
	}
	return l
}

// kindOf maps the first byte of a value to one byte per kind of value.
func kindOf(c byte) byte {
	switch {
	case c == '-' || '0' <= c && c <= '9':
		return '0'
	case c == 'f':
		return 't'
	}
	return c & 127
}

// Size is the most bytes that Write needs.
func (l *Layout) Size() int {
	switch l.kind {
	case "string", "json", "line", "bytes":
		return align(l.bytes) + align(4*len(l.values))
	case "bool":
		return align(len(l.values))
	}
	return align(len(l.numbers))
}

func align(n int) int { return (n + 7) &^ 7 }

// Write writes the column to the shared memory at offset at, and returns its
// description and the offset after it.
func (l *Layout) Write(memory []byte, at int) (Field, int) {
	f := Field{Name: l.name, Kind: l.kind, Width: l.width, Missing: l.missing}
	switch l.kind {
	case "string", "json", "line", "bytes":
		return l.writeBytes(f, memory, at)
	case "bool":
		for i, value := range l.values {
			memory[at+i] = 0
			if value[0] == 't' {
				memory[at+i] = 1
			}
		}
		f.Data = Area{uint64(at), uint64(len(l.values))}
	default:
		f.Data = Area{uint64(at), uint64(copy(memory[at:], l.numbers))}
	}
	return f, at + l.Size()
}

// writeBytes writes strings, or values as the record spells them, one after the
// other, followed by their lengths.
func (l *Layout) writeBytes(f Field, memory []byte, at int) (Field, int) {
	lengthsAt := at + align(l.bytes)
	lengths := memory[lengthsAt : lengthsAt+4*len(l.values)]
	data := memory[at:at:lengthsAt]
	plain := true // nothing null or missing
	for i, value := range l.values {
		before := len(data)
		var length uint32
		switch {
		case value == nil && l.kind == "bytes":
			length, plain = NullLength, false
		case value == nil:
			length, plain = missingLength, false
		case l.kind == "string" && value[0] == 'n':
			length, plain = NullLength, false
		case l.kind == "string":
			data = jsonline.AppendUnquoted(data, value)
			length = uint32(len(data) - before)
		default:
			data = append(data, value...)
			length = uint32(len(value))
		}
		binary.LittleEndian.PutUint32(lengths[4*i:], length)
	}
	f.Data = Area{uint64(at), uint64(len(data))}
	f.Lengths = &Area{uint64(lengthsAt), uint64(len(lengths))}
	f.ASCII = plain && l.kind == "string" && isASCII(data)
	return f, lengthsAt + align(len(lengths))
}

func isASCII(data []byte) bool {
	for len(data) >= 8 {
		if binary.LittleEndian.Uint64(data)&0x8080808080808080 != 0 {
			return false
		}
		data = data[8:]
	}
	for _, c := range data {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// fileLayout is the layout of fetched files.
func fileLayout(name string, files [][]byte) Layout {
	l := Layout{name: name, kind: "bytes", values: files}
	for _, file := range files {
		l.bytes += len(file)
	}
	return l
}

// LineLayout is the layout of the whole records.
func LineLayout(batch plugins.Batch) Layout {
	l := Layout{kind: "line", values: make([][]byte, batch.Len())}
	for i := range l.values {
		l.values[i] = batch.Record(i)
		l.bytes += len(l.values[i])
	}
	return l
}
