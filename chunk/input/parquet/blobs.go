package parquet

import "github.com/gpurun/gpurun/chunk/input/format"

// isBytes reports whether the values of a column are bytes, or structs of bytes and path.
func (n *node) isBytes() bool { return n.kind == scalarNode && n.binary || n.isFile() }

// isFile reports whether the values are structs of bytes and path, as data sets of the Hugging Face
// Hub have for images and sounds. The bytes may be null: they are then in the file at the path.
func (n *node) isFile() bool {
	if n.kind != objectNode || len(n.children) != 2 {
		return false
	}
	data, path := n.child("bytes"), n.child("path")
	return data != nil && data.kind == scalarNode && data.binary && path != nil && path.kind == scalarNode && path.text
}

// child returns a member of an object, nil if there is none of that name.
func (n *node) child(name string) *node {
	for _, c := range n.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

// blob takes the current value of a column of bytes, without stepping over it.
func (w *rowWriter) blob(n *node) {
	data := n
	if n.kind == objectNode {
		data = n.child("bytes")
		if !n.optional || w.cursors[n.from].def() >= n.def {
			w.beside.Set(n.blob, format.StructBlob, nil)
		}
		if v, ok := w.cursors[n.child("path").from].value(); ok {
			w.beside.Set(n.blob, format.PathBlob, v)
		}
	}
	if v, ok := w.cursors[data.from].value(); ok {
		w.beside.Set(n.blob, format.BytesBlob, v)
	}
}
