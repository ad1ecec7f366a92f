package protocol

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// inlineBelow is the size below which results are sent inline: touching another page
// of the arena would cost more.
const InlineBelow = 2 << 10

// carrier places the byte strings of one message: in this side's half of the arena if
// there is one and it has room, else inline.
type Carrier struct {
	Arena *Arena // may be nil
	held  []*Memory
	Total uint64 // bytes of all strings
	// least is the size below which strings are sent inline. It is 0 for records, which need the
	// arena's write protection whatever their size: otherwise a kernel that writes to them
	// would fail in one batch and pass in another.
	Least int
}

// fits counts n more bytes and reports whether the message stays within the limit. A
// message over the limit is never sent, so its strings need not be copied.
func (c *Carrier) fits(n int) bool {
	c.Total += uint64(n)
	return c.Total <= MaxMessage
}

// place allocates n bytes in the arena; nil if they must be sent inline.
func (c *Carrier) place(n int) (data []byte, offset uint64) {
	if c.Arena == nil || n < c.Least {
		return nil, 0
	}
	b := c.Arena.Alloc(n)
	if b == nil {
		return nil, 0
	}
	c.held = append(c.held, b)
	return b.Bytes()[:n], c.Arena.ownAt + uint64(b.start)
}

// free releases the arena memory of the message.
func (c *Carrier) Free() {
	for _, b := range c.held {
		b.Free()
	}
	c.held = nil
}

// packBlock copies items into the arena, or into the message.
func Pack[T ~string | ~[]byte](c *Carrier, items []T) *kernelpb.Block {
	total := 0
	block := &kernelpb.Block{Lengths: make([]uint32, len(items))}
	for i, item := range items {
		block.Lengths[i] = uint32(len(item))
		total += len(item)
	}
	if !c.fits(total) {
		return block
	}
	data, offset := c.place(total)
	if data != nil {
		block.Offset = &offset
	} else {
		block.Inline = make([]byte, total)
		data = block.Inline
	}
	for _, item := range items {
		data = data[copy(data, item):]
	}
	return block
}

// packShared is packBlock for items that the caller may have put into this side's half of the
// arena: if all of them are there, it describes where.
func PackShared(c *Carrier, items [][]byte) *kernelpb.Block {
	if c.Arena == nil {
		return Pack(c, items)
	}
	block := &kernelpb.Block{Offset: &c.Arena.ownAt, Lengths: make([]uint32, len(items)), Gaps: make([]int64, len(items))}
	end, total := c.Arena.ownAt, 0
	for i, item := range items {
		at, ok := c.Arena.OffsetOf(item)
		switch {
		case len(item) == 0: // anywhere
			at = end
		case !ok:
			return Pack(c, items)
		}
		block.Lengths[i], block.Gaps[i] = uint32(len(item)), int64(at-end)
		end = at + uint64(len(item))
		total += len(item)
	}
	c.fits(total)
	return block
}

// blockData returns the bytes of a block, which must not have gaps. The other side may still
// change bytes that are in the arena.
func Data(block *kernelpb.Block, a *Arena) ([]byte, error) {
	switch {
	case len(block.GetGaps()) > 0:
		return nil, fmt.Errorf("a block has gaps")
	case block == nil || block.Offset == nil:
		return block.GetInline(), nil
	}
	return a.at(block.GetOffset(), SharedBytes(block))
}

// sharedBytes returns the number of bytes of a block in the arena.
func SharedBytes(block *kernelpb.Block) (total uint64) {
	if block != nil && block.Offset != nil {
		for _, length := range block.GetLengths() {
			total += uint64(length) // cannot overflow: a message has too few 32-bit numbers for that
		}
	}
	return total
}

// eachItem calls visit with the bounds of each item in a block's data of size bytes.
func eachItem(block *kernelpb.Block, size int, visit func(i, from, to int)) error {
	at := 0
	for i, length := range block.GetLengths() {
		end := at + int(length)
		if end > size {
			return fmt.Errorf("item %d of a block ends past its bytes", i)
		}
		visit(i, at, end)
		at = end
	}
	if at < size {
		return fmt.Errorf("a block has %d bytes more than its items", size-at)
	}
	return nil
}

func splitBlock(block *kernelpb.Block, data []byte) ([][]byte, error) {
	items := make([][]byte, len(block.GetLengths()))
	err := eachItem(block, len(data), func(i, from, to int) { items[i] = data[from:to:to] })
	return items, err
}

// unpackInPlace returns a block's items without copying them. It is for the kernel's
// side: the worker does not change records in use.
func UnpackInPlace(block *kernelpb.Block, a *Arena) ([][]byte, error) {
	gaps := block.GetGaps()
	if len(gaps) == 0 {
		data, err := Data(block, a)
		if err != nil {
			return nil, err
		}
		return splitBlock(block, data)
	}
	items := make([][]byte, len(gaps))
	if len(gaps) != len(block.GetLengths()) {
		return nil, fmt.Errorf("a block of %d items has %d gaps", len(block.GetLengths()), len(gaps))
	}
	if a == nil {
		return nil, errNoArena
	}
	at, size := block.GetOffset()-a.peerAt, uint64(len(a.Peer)) // an offset before the half wraps
	for i, length := range block.GetLengths() {
		at += uint64(gaps[i])
		end := at + uint64(length)
		if at > size || end > size {
			return nil, fmt.Errorf("item %d of a block is outside the shared memory", i)
		}
		items[i] = a.Peer[at:end:end]
		at = end
	}
	return items, nil
}

// unpackCopy returns copies of a block's items, which the other side cannot change.
func UnpackCopy(block *kernelpb.Block, a *Arena) ([][]byte, error) {
	data, err := Data(block, a)
	if err != nil {
		return nil, err
	}
	return splitBlock(block, bytes.Clone(data))
}

// unpackStrings is unpackCopy for strings.
func UnpackStrings(block *kernelpb.Block, a *Arena) ([]string, error) {
	data, err := Data(block, a)
	if err != nil {
		return nil, err
	}
	text := string(data)
	items := make([]string, len(block.GetLengths()))
	err = eachItem(block, len(text), func(i, from, to int) { items[i] = text[from:to] })
	return items, err
}

// IsSame reports whether a line is the record itself, in memory that the other side
// shares. A record that was sent inline does not count: the kernel may have changed it.
func (c *Carrier) IsSame(line, record []byte) bool {
	at := unsafe.SliceData(record)
	return len(line) == len(record) && unsafe.SliceData(line) == at && c.Arena.IsTheirs(uintptr(unsafe.Pointer(at)))
}
