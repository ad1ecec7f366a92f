package parquet

import "github.com/gpurun/gpurun/chunk/input/format"

// blob takes the current value of a column of bytes, without stepping over it.
func (w *rowWriter) blob(n *node) {
	data := n
	if n.IsFile() {
		data = n.children[n.Bytes]
		if !n.Optional || w.cursors[n.from].def() >= n.def {
			w.beside.Set(n.Beside, format.StructBlob, nil)
		}
		if v, ok := w.cursors[n.children[n.Path].from].value(); ok {
			w.beside.Set(n.Beside, format.PathBlob, v)
		}
	}
	if v, ok := w.cursors[data.from].value(); ok {
		w.beside.Set(n.Beside, format.BytesBlob, v)
	}
}
