package chunk

import "sort"

// Chunk is a run of consecutive records: a byte range of one file. It only describes the
// records; a Reader reads them.
type Chunk struct {
	// File holds the records: the input itself or a spool file.
	File string `json:"file"`
	// Offset and Length are the byte range, from the start of a line to the end of one.
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
	// Blobs is how many values each record of a spool file has beside its line; see BlobFile.
	Blobs int `json:"blobs,omitempty"`
	// First is the number of the first record in the whole input, from 0.
	First int64 `json:"first"`
	// Records is the number of records.
	Records int64 `json:"records"`
	// Line is the number of the first line in its input file, from 1. Blank lines count,
	// because editors count them.
	Line int64 `json:"line"`
	// Source is the name of the input file, unless that is File or a stream without a name.
	Source string `json:"source,omitempty"`
	// Rows: the input file has rows, and Line is the number of one.
	Rows bool `json:"rows,omitempty"`
	// Files are the other input files of a chunk with the lines of several, in order.
	Files []FileStart `json:"files,omitempty"`
	// Preceding and Following are how many records of the source's chunk come before and after this
	// one, if it is only a part of that. Batches, and the parts of an output folder, are cut at
	// places of the source's chunk, however that chunk was split.
	Preceding int64 `json:"preceding,omitempty"`
	Following int64 `json:"following,omitempty"`
}

// BlobFile is the file of the values that the records of File have beside their lines.
func (c Chunk) BlobFile() string { return c.File + ".blobs" }

// FileStart is where the lines of another input file begin in a chunk.
type FileStart struct {
	// Line is the number of its first line, counted on from Chunk.Line.
	Line int64 `json:"line"`
	// Name is the name of the file, First the number of that line in it.
	Name  string `json:"name"`
	First int64  `json:"first"`
}

// Origin is where a record is in the input, as a user would look for it.
type Origin struct {
	// File is the name of the input file; "" for a stream without a name, and for the only
	// input if Chunk.File is that.
	File string
	Line int64
	// Row: Line is the number of a row.
	Row bool
}

// Origin returns where the record on a line is. Lines are counted on from Chunk.Line.
func (c Chunk) Origin(line int64) Origin {
	o := Origin{File: c.Source, Line: line, Row: c.Rows}
	after := sort.Search(len(c.Files), func(i int) bool { return c.Files[i].Line > line })
	if after > 0 {
		file := c.Files[after-1]
		o.File, o.Line = file.Name, file.First+line-file.Line
	}
	return o
}

// Unit returns what a line number counts: lines, or the rows of a table.
func Unit(rows bool) string {
	if rows {
		return "row"
	}
	return "line"
}

// Start returns where the first line is.
func (c Chunk) Start() Place { return Place{c.Offset, c.Line} }

// Before returns the part of c before rest, which is its end.
func (c Chunk) Before(rest Chunk) Chunk {
	return c.Head(rest.Start(), rest.First)
}

// Place is where a line starts in its file.
type Place struct {
	Offset int64 `json:"offset"`
	Line   int64 `json:"line"`
}

// Tail returns the part of c that begins with record first, which is at at.
func (c Chunk) Tail(at Place, first int64) Chunk {
	end, last := c.Offset+c.Length, c.First+c.Records
	c.Preceding += first - c.First
	c.Offset, c.Line = at.Offset, at.Line
	c.Length, c.First, c.Records = end-at.Offset, first, last-first
	return c
}

// Head returns the part of c that ends before record end, which is at at.
func (c Chunk) Head(at Place, end int64) Chunk {
	c.Following += c.First + c.Records - end
	c.Length, c.Records = at.Offset-c.Offset, end-c.First
	return c
}

// Size returns the number of records per chunk when n records are split into k chunks: n/k
// by ceiling division, rounded up to whole batches so that no chunk ends with a small one.
// With batch 1 it is ceil(n/k).
func Size(n int64, k, batch int) int64 {
	if n <= 0 {
		return 0
	}
	size := CeilDiv(n, int64(max(k, 1)))
	if batch > 1 && k > 1 {
		size = CeilDiv(size, int64(batch)) * int64(batch)
	}
	return size
}

// CeilDiv returns a divided by b, rounded up.
func CeilDiv(a, b int64) int64 { return (a + b - 1) / b }
