package commit

import (
	"math"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/encode"
)

// DefaultPartBytes is the minimum size of a part in a folder, except for the last one: many
// small files are inconvenient.
const DefaultPartBytes = 64 << 20

// partCutter decides which records go to which part of a folder; a file is one part. A part ends with the first
// chunk of the source that brings it to the minimum size. That depends on the input, how it
// was split, and the kernel, but not on which worker computed what when.
type partCutter struct {
	bytes  int64
	parts  []ManifestPart
	units  []Unit // of the last one, when a job resumes
	full   bool   // the last part is full
	format encode.Format
}

// cutParts returns the parts of the durable output.
func (s State) cutParts(options Options) *partCutter {
	c := &partCutter{bytes: options.PartBytes, format: options.Format}
	if c.bytes <= 0 {
		c.bytes = math.MaxInt64
	}
	c.begin(options.First)
	for _, segment := range s.Output {
		c.next(segment.First)
		c.add(segment)
	}
	last, part := len(c.parts)-1, 0
	for _, e := range s.Encoded {
		for _, u := range e.Units {
			for !options.Format.Table && part < last && c.parts[part+1].First <= e.First {
				part++
			}
			c.parts[part].join(u.sum())
			if part == last {
				c.units = append(c.units, u)
			} else if u.isTail() {
				part++
			}
		}
	}
	return c
}

// begin begins a part.
func (c *partCutter) begin(first int64) {
	c.parts = append(c.parts, ManifestPart{Name: partName(len(c.parts), c.format), First: first})
	c.full = false
}

// next begins a new part at a record if the last part is full, and reports whether it did.
func (c *partCutter) next(first int64) bool {
	if !c.full {
		return false
	}
	c.begin(first)
	return true
}

// add appends a segment to the last part. Where parts end is decided before their units are encoded.
func (c *partCutter) add(s chunk.Segment) {
	p := &c.parts[len(c.parts)-1]
	p.Records += s.Tally.Records
	p.Lines += s.Lines
	p.Unencoded += s.Files[chunk.Results].Bytes
	c.full = !s.Inner && p.Unencoded >= c.bytes
}

// join appends a unit to a part.
func (p *ManifestPart) join(next chunk.FileSum) {
	sum := chunk.FileSum{Bytes: p.Bytes, CRC: uint32(p.CRC32C)}.Join(next)
	p.Bytes, p.CRC32C = sum.Bytes, chunk.CRC(sum.CRC)
}

// last returns the part that is being written.
func (c *partCutter) last() ManifestPart { return c.parts[len(c.parts)-1] }
