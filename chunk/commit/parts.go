package commit

import (
	"github.com/gpurun/gpurun/chunk"
)

// DefaultPartBytes is the minimum size of a part in a folder, except for the last one: many
// small files are inconvenient.
const DefaultPartBytes = 64 << 20

// partCutter decides which records go to which part of a folder. A part ends with the first
// chunk of the source that brings it to the minimum size. That depends on the input, how it
// was split, and the kernel, but not on which worker computed what when.
type partCutter struct {
	bytes int64
	parts []ManifestPart
	full  bool // the last part is full
}

// cutParts returns the parts of an output so far.
func cutParts(bytes, first int64, runs []chunk.Run) *partCutter {
	c := &partCutter{bytes: bytes, parts: []ManifestPart{{Name: partName(0), First: first}}}
	for _, r := range runs {
		c.next(r.First)
		c.add(r)
	}
	return c
}

// next begins a new part at a record if the last part is full, and reports whether it did.
func (c *partCutter) next(first int64) bool {
	if !c.full {
		return false
	}
	c.parts = append(c.parts, ManifestPart{Name: partName(len(c.parts)), First: first})
	c.full = false
	return true
}

// add appends a run to the last part.
func (c *partCutter) add(r chunk.Run) {
	p := &c.parts[len(c.parts)-1]
	sum := chunk.FileSum{Bytes: p.Bytes, CRC: uint32(p.CRC32C)}.Join(r.Sum)
	p.Records += r.Records
	p.Lines += r.Lines
	p.Bytes, p.CRC32C = sum.Bytes, chunk.CRC(sum.CRC)
	c.full = !r.Inner && p.Bytes >= c.bytes
}

// last returns the part that is being written.
func (c *partCutter) last() ManifestPart { return c.parts[len(c.parts)-1] }
