package arrow

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gpurun/gpurun/chunk/arrow"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// align is what the places and lengths of buffers are multiples of, as Arrow recommends.
const align = 64

var padding [align]byte

// Group encodes a record batch.
type Group struct {
	columns []*columnWriter
	rows    int64
}

// NewGroup begins a record batch.
func NewGroup(s parquet.Schema) *Group {
	g := new(Group)
	for _, l := range s.Leaves() {
		g.columns = append(g.columns, newColumnWriter(l))
	}
	return g
}

// Add adds rows, one after another.
func (g *Group) Add(rows []byte) (err error) {
	for ; len(rows) > 0; g.rows++ {
		for _, c := range g.columns {
			if rows, err = c.add(rows); err != nil {
				return err
			}
			if len(c.values) > math.MaxInt32 {
				return fmt.Errorf("column %q has more than 2 GiB in a record batch", c.leaf.Name)
			}
		}
	}
	return nil
}

// Finish returns the record batch, in pieces, and its description, for Tail.
func (g *Group) Finish() (data [][]byte, meta []byte) {
	b := &batch{nodes: arrow.Structs{Size: arrow.NodeBytes}, buffers: arrow.Structs{Size: arrow.BufferBytes}}
	for _, c := range g.columns {
		c.finish(b)
	}
	head := padded(arrow.Message(arrow.BatchMessage, arrow.Fields{0: g.rows, 1: b.nodes, 2: b.buffers}, b.size), 0)
	return append([][]byte{head}, b.data...), arrow.AppendWords(nil, g.rows, int64(len(head)), b.size)
}

// padded returns a message whose table is longer, so that what follows it is aligned. before is how many bytes
// precede it.
func padded(message []byte, before int) []byte {
	if rest := (before + len(message)) % align; rest > 0 {
		message = append(message, padding[rest:]...)
		binary.LittleEndian.PutUint32(message[4:], uint32(len(message)-8))
	}
	return message
}

// batch is the parts of a record batch.
type batch struct {
	nodes, buffers arrow.Structs
	data           [][]byte
	size           int64
}

// node adds the number of values of a column, or of a child of one.
func (b *batch) node(rows, nulls int) {
	b.nodes.Data = arrow.AppendWords(b.nodes.Data, int64(rows), int64(nulls))
}

// buffer adds a buffer.
func (b *batch) buffer(data []byte) {
	b.buffers.Data = arrow.AppendWords(b.buffers.Data, b.size, int64(len(data)))
	if len(data) == 0 {
		return
	}
	b.data = append(b.data, data)
	b.size += int64(len(data))
	if rest := len(data) % align; rest > 0 {
		b.data = append(b.data, padding[rest:])
		b.size += int64(align - rest)
	}
}
