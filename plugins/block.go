package plugins

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// inlineBelow is the size below which byte strings are sent inline: touching another page
// of the arena would cost more.
const inlineBelow = 2 << 10

// carrier places the byte strings of one message: in this side's half of the arena if
// there is one and it has room, else inline.
type carrier struct {
	arena *arena // may be nil
	held  []*Memory
	total uint64 // bytes of all strings
	// short puts short strings into the arena too. Records need its write protection
	// whatever their size: otherwise a kernel that writes to them would fail in one batch
	// and pass in another.
	short bool
}

// fits counts n more bytes and reports whether the message stays within the limit. A
// message over the limit is never sent, so its strings need not be copied.
func (c *carrier) fits(n int) bool {
	c.total += uint64(n)
	return c.total <= maxMessage
}

// place allocates n bytes in the arena; nil if they must be sent inline.
func (c *carrier) place(n int) (data []byte, offset uint64) {
	if c.arena == nil || n < c.arena.inlineBelow && !c.short {
		return nil, 0
	}
	b := c.arena.alloc(n)
	if b == nil {
		return nil, 0
	}
	c.held = append(c.held, b)
	return b.Bytes()[:n], c.arena.ownAt + b.region.offset
}

// free releases the arena memory of the message.
func (c *carrier) free() {
	for _, b := range c.held {
		b.Free()
	}
	c.held = nil
}

// packBlock copies items into the arena, or into the message.
func packBlock[T ~string | ~[]byte](c *carrier, items []T) *kernelpb.Block {
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

// packInPlace describes items that are already in this side's half of the arena, in
// order; nil if they are not.
func packInPlace(c *carrier, items [][]byte) *kernelpb.Block {
	if c.arena == nil || len(items) == 0 {
		return nil
	}
	first, ok := c.arena.offsetOf(items[0])
	if !ok {
		return nil
	}
	block := &kernelpb.Block{
		Offset: &first, Lengths: make([]uint32, len(items)), Gaps: make([]uint32, len(items)-1),
	}
	end, total := first, 0
	for i, item := range items {
		at, ok := c.arena.offsetOf(item)
		if !ok || at < end || at-end > math.MaxUint32 {
			return nil
		}
		if i > 0 {
			block.Gaps[i-1] = uint32(at - end)
		}
		block.Lengths[i] = uint32(len(item))
		end = at + uint64(len(item))
		total += len(item)
	}
	c.fits(total)
	return block
}

// blockData returns a block's bytes, gaps included. The other side may still change bytes
// that are in the arena.
func blockData(block *kernelpb.Block, a *arena) ([]byte, error) {
	if block == nil || block.Offset == nil {
		return block.GetInline(), nil
	}
	return a.at(block.GetOffset(), blockSize(block))
}

// blockSize returns the number of bytes that a block takes in the arena, gaps included.
func blockSize(block *kernelpb.Block) uint64 {
	if block == nil || block.Offset == nil {
		return 0
	}
	total := uint64(0) // cannot overflow: a message has too few 32-bit numbers for that
	for _, length := range block.GetLengths() {
		total += uint64(length)
	}
	for _, gap := range block.GetGaps() {
		total += uint64(gap)
	}
	return total
}

// eachItem calls take with the bounds of each item in the block's data of size bytes.
func eachItem(block *kernelpb.Block, size int, take func(i, from, to int)) error {
	lengths, gaps := block.GetLengths(), block.GetGaps()
	if len(gaps) > 0 && len(gaps) != len(lengths)-1 {
		return fmt.Errorf("a block of %d items has %d gaps", len(lengths), len(gaps))
	}
	at := 0
	for i, length := range lengths {
		if i > 0 && len(gaps) > 0 {
			at += int(gaps[i-1])
		}
		end := at + int(length)
		if end > size {
			return fmt.Errorf("item %d of a block ends past its bytes", i)
		}
		take(i, at, end)
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
func unpackInPlace(block *kernelpb.Block, a *arena) ([][]byte, error) {
	data, err := blockData(block, a)
	if err != nil {
		return nil, err
	}
	return splitBlock(block, data)
}

// unpackCopy returns copies of a block's items, which the other side cannot change.
func unpackCopy(block *kernelpb.Block, a *arena) ([][]byte, error) {
	data, err := blockData(block, a)
	if err != nil {
		return nil, err
	}
	if block != nil && block.Offset != nil {
		data = append([]byte(nil), data...)
	}
	return splitBlock(block, data)
}

// unpackStrings is unpackCopy for strings.
func unpackStrings(block *kernelpb.Block, a *arena) ([]string, error) {
	data, err := blockData(block, a)
	if err != nil {
		return nil, err
	}
	text := string(data)
	items := make([]string, len(block.GetLengths()))
	err = eachItem(block, len(text), func(i, from, to int) { items[i] = text[from:to] })
	return items, err
}

// packNumbers encodes values as little-endian binary: into the arena, and the message
// refers to them there, or into the returned bytes, to be sent inline.
func packNumbers[T any](c *carrier, message *kernelpb.Column, values []T, put func([]byte, []T)) []byte {
	size := binary.Size(values)
	if !c.fits(size) {
		return nil
	}
	data, offset := c.place(size)
	inline := data == nil
	if inline {
		data = make([]byte, size)
	}
	put(data, values)
	if inline {
		return data
	}
	message.Offset, message.Size = &offset, uint64(len(data))
	return nil
}

// unpackNumbers returns a copy of a column's values.
func unpackNumbers[T any](message *kernelpb.Column, inline []byte, a *arena, get func([]byte) []T) ([]T, error) {
	data := inline
	if message.Offset != nil {
		var err error
		if data, err = a.at(message.GetOffset(), message.GetSize()); err != nil {
			return nil, err
		}
	}
	size := int(unsafe.Sizeof(*new(T)))
	if len(data)%size != 0 {
		return nil, fmt.Errorf("%d bytes are not a whole number of values", len(data))
	}
	return get(data), nil
}
