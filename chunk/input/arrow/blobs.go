package arrow

import (
	"slices"

	"github.com/gpurun/gpurun/chunk/input/format"
)

// placeBytes decides where the values of columns of bytes go, and leaves out those that go nowhere.
func (d *decoder) placeBytes(b *format.Bytes) {
	if b == nil {
		return
	}
	d.blobs = len(b.Beside)
	for _, c := range d.members {
		if c.isBytes() {
			c.blob, c.inline = b.Place(c.name)
		}
	}
	d.members = slices.DeleteFunc(slices.Clone(d.members), func(c *column) bool { return !c.inline && c.blob < 0 })
}

// isBytes reports whether the values of a column are bytes, or structs of bytes and path, as data sets of
// the Hugging Face Hub have for images and sounds.
func (c *column) isBytes() bool {
	if c.layout != structLayout || len(c.children) != 2 {
		return c.binary
	}
	data, path := c.child("bytes"), c.child("path")
	return data >= 0 && path >= 0 && c.children[data].binary && c.children[path].text
}

// child returns the number of the child with a name, -1 if there is none.
func (c *column) child(name string) int {
	return slices.IndexFunc(c.children, func(child *column) bool { return child.name == name })
}

// blob takes a value of a column of bytes.
func (b *batch) blob(v *values, i int64) {
	if v.isNull(i) {
		return
	}
	data := v
	if v.layout == structLayout {
		data = v.children[v.column.child("bytes")]
		b.beside.Set(v.blob, format.StructBlob, nil)
		if path, ok := v.children[v.column.child("path")].plain(i); ok {
			b.beside.Set(v.blob, format.PathBlob, path)
		}
	}
	if bytes, ok := data.plain(i); ok {
		b.beside.Set(v.blob, format.BytesBlob, bytes)
	}
}

// isNull reports whether a value is null.
func (v *values) isNull(i int64) bool {
	if i < 0 || i >= v.rows {
		fail("value %d of %d", i, v.rows)
	}
	return v.layout == nullLayout || v.valid != nil && v.valid[i>>3]>>(i&7)&1 == 0
}

// plain returns the bytes of a value; false if it is null.
func (v *values) plain(i int64) ([]byte, bool) {
	if v.isNull(i) {
		return nil, false
	}
	switch v.layout {
	case fixedLayout:
		return v.data[i*int64(v.width):][:v.width], true
	case viewLayout:
		return v.view(i), true
	}
	from, to := v.span(i)
	if to > int64(len(v.data)) {
		fail("a value ends at %d of %d bytes", to, len(v.data))
	}
	return v.data[from:to], true
}
