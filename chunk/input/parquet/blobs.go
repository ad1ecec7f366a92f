package parquet

import "github.com/gpurun/gpurun/chunk/input/format"

// placeBytes decides where the values of columns of bytes go.
func (f *File) placeBytes(b *format.Bytes) {
	if b == nil {
		return
	}
	f.blobs = len(b.Beside)
	var read []*node
	for _, n := range f.members {
		if n.isBytes() {
			n.blob, n.inline = b.Place(n.name)
		}
		if n.inline || n.blob >= 0 {
			read = append(read, n)
		}
	}
	f.members = read
}

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
		if v, ok := w.cursors[n.child("path").from].value(); ok && len(v) > 0 {
			w.beside.Set(n.blob, format.PathBlob, v)
		}
	}
	if v, ok := w.cursors[data.from].value(); ok {
		w.beside.Set(n.blob, format.BytesBlob, v)
	}
}
