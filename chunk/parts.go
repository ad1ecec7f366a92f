package chunk

// DefaultPartBytes is how large a part of a folder is at least, the last
// excepted: many small files help nobody.
const DefaultPartBytes = 64 << 20

// partCutter decides which records go to which part of a folder: a part ends with
// the first chunk, as the source gave it, by which it has so many bytes. That
// depends on the input, its cut and the kernel, and not on who computed what when.
type partCutter struct {
	bytes int64
	parts []ManifestPart
	full  bool // the last part is
}

// cutParts is the parts of an output so far.
func cutParts(bytes, first int64, runs []Run) *partCutter {
	c := &partCutter{bytes: bytes, parts: []ManifestPart{{Name: partName(0), First: first}}}
	for _, r := range runs {
		c.next(r.First)
		c.add(r)
	}
	return c
}

// next begins a new part with a record if the last part is full, and reports
// whether it did.
func (c *partCutter) next(first int64) bool {
	if !c.full {
		return false
	}
	c.parts = append(c.parts, ManifestPart{Name: partName(len(c.parts)), First: first})
	c.full = false
	return true
}

// add puts a run at the end of the last part.
func (c *partCutter) add(r Run) {
	p := &c.parts[len(c.parts)-1]
	sum := FileSum{Bytes: p.Bytes, CRC: uint32(p.CRC32C)}.join(r.Sum)
	p.Records += r.Records
	p.Lines += r.Lines
	p.Bytes, p.CRC32C = sum.Bytes, CRC(sum.CRC)
	c.full = !r.Inner && p.Bytes >= c.bytes
}

// last is the part that is being written.
func (c *partCutter) last() ManifestPart { return c.parts[len(c.parts)-1] }
