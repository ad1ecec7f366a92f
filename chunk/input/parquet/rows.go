package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/gpurun/gpurun/chunk/input/parallel"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// rowWriter turns the values of a row group into JSON.
type rowWriter struct {
	members []*node
	cursors []*cursor // by column; nil for those that are not read
	dst     []byte
	blobs   int             // values beside each line
	beside  parallel.Beside // of the lines in dst
	row     int64           // in the file, from 0
	badText *node           // of the row, with text that is not UTF-8
}

// maxRow is a variable so that tests can lower it.
var maxRow = parallel.MaxRow

// errColumns means that the columns of a row group do not have the same rows.
var errColumns = errors.New("its values do not match those of other columns")

// line appends the next row as a line.
func (w *rowWriter) line() error {
	w.badText = nil
	w.beside.Next(w.blobs)
	w.dst = append(w.dst, '{')
	written := 0
	err := w.each(func(_ int, n *node) {
		if n.Beside >= 0 {
			w.blob(n)
		}
		if !n.Inline {
			w.skip(n)
			return
		}
		w.member(written, n)
		written++
	})
	if w.badText != nil {
		w.dst = w.badText.AppendBadText(w.dst)
	}
	w.dst = append(w.dst, '}', '\n')
	return err
}

// each calls write for the members of the next row, which it must step over.
func (w *rowWriter) each(write func(i int, n *node)) error {
	for i, n := range w.members {
		for _, c := range w.cursors[n.from:n.to] {
			if c.ended || c.rep() != 0 {
				return w.failed(n, c.err)
			}
		}
		write(i, n)
		for _, c := range w.cursors[n.from:n.to] {
			if c.err != nil {
				return w.failed(n, c.err)
			}
		}
	}
	w.row++
	return nil
}

// comma separates the elements of an array or object.
func (w *rowWriter) comma(i int) {
	if i > 0 {
		w.dst = append(w.dst, ',')
	}
}

// member appends a member of an object.
func (w *rowWriter) member(i int, n *node) {
	w.comma(i)
	w.dst = append(w.dst, n.Prefix...)
	w.value(n)
}

func (w *rowWriter) failed(n *node, err error) error {
	if err == nil {
		err = errColumns
	}
	return fmt.Errorf("row %d: column %q: %w", w.row+1, n.Name, err)
}

// value appends the current value of a node and steps over it.
func (w *rowWriter) value(n *node) {
	first := w.cursors[n.from]
	if n.Optional && first.def() < n.def {
		w.dst = append(w.dst, "null"...)
		w.skip(n)
		return
	}
	switch n.kind {
	case scalarNode:
		w.scalar(n, first)
	case objectNode:
		w.dst = append(w.dst, '{')
		for i, member := range n.children {
			w.member(i, member)
		}
		w.dst = append(w.dst, '}')
	case listNode:
		w.dst = append(w.dst, '[')
		w.elements(n, first, func(i int) { w.comma(i); w.value(n.children[0]) })
		w.dst = append(w.dst, ']')
	case mapNode:
		w.dst = append(w.dst, '{')
		w.elements(n, first, func(i int) { w.comma(i); w.pair(n) })
		w.dst = append(w.dst, '}')
	}
}

func (w *rowWriter) scalar(n *node, c *cursor) {
	if v, ok := c.value(); !ok {
		w.dst = append(w.dst, "null"...)
	} else {
		if w.dst = n.Write(w.dst, v); n.Text && !utf8.Valid(v) {
			w.badText = n
		}
	}
	c.next()
}

// elements writes the elements of a list or map, if it has any.
func (w *rowWriter) elements(n *node, first *cursor, write func(i int)) {
	if first.def() < n.elementDef {
		w.skip(n)
		return
	}
	for i := 0; ; i++ {
		write(i)
		if len(w.dst) > maxRow && !first.ended {
			first.fail(fmt.Errorf("the row has more than %d MiB as JSON", maxRow>>20))
		}
		if first.ended || first.rep() != n.elementRep {
			return
		}
	}
}

// pair writes key and value of a map's element. Keys that are not text become text.
func (w *rowWriter) pair(n *node) {
	start := len(w.dst)
	w.value(n.children[0])
	if w.dst[start] != '"' {
		key := string(w.dst[start:])
		w.dst = jsonline.AppendString(w.dst[:start], key)
	}
	w.dst = append(w.dst, ':')
	w.value(n.children[1])
}

// skip steps over a node that is null or empty: one value of each of its columns.
func (w *rowWriter) skip(n *node) {
	for _, c := range w.cursors[n.from:n.to] {
		c.next()
	}
}

// raw appends the current value of a node as in a row of a table, and steps over it.
func (w *rowWriter) raw(n *node) {
	if n.kind == objectNode {
		for _, c := range w.cursors[n.from:n.to] {
			w.dst = append(w.dst, byte(c.def()))
			if v, ok := c.value(); ok {
				w.dst = append(binary.LittleEndian.AppendUint32(w.dst, uint32(len(v))), v...)
			}
			c.next()
		}
		return
	}
	first := w.cursors[n.from]
	if n.Optional {
		exists := first.def() >= n.def
		if w.dst = append(w.dst, 0); !exists {
			w.skip(n)
			return
		}
		w.dst[len(w.dst)-1] = 1
	}
	if n.kind == listNode {
		at, count := len(w.dst), uint32(0)
		w.dst = append(w.dst, 0, 0, 0, 0)
		w.elements(n, first, func(int) { w.raw(n.children[0]); count++ })
		binary.LittleEndian.PutUint32(w.dst[at:], count)
		return
	}
	v, _ := first.value()
	if first.leaf.size() == 0 {
		w.dst = binary.LittleEndian.AppendUint32(w.dst, uint32(len(v)))
	}
	w.dst = append(w.dst, v...)
	first.next()
}
