package arrow

import "github.com/gpurun/gpurun/chunk/input/format"

// blob takes a value of a column of bytes.
func (b *batch) blob(v *values, i int64) {
	if v.isNull(i) {
		return
	}
	data := v
	if v.IsFile() {
		data = v.children[v.Bytes]
		b.beside.Set(v.Beside, format.StructBlob, nil)
		if path, ok := v.children[v.Path].plain(i); ok {
			b.beside.Set(v.Beside, format.PathBlob, path)
		}
	}
	if bytes, ok := data.plain(i); ok {
		b.beside.Set(v.Beside, format.BytesBlob, bytes)
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
