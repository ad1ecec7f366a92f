package orchestrator

// Small files are read in bundles: their records share chunks and thereby batches, and a
// folder of a thousand files with a record each is computed in full batches.
const (
	// bundleBytes is the size of a bundle; a file is small if it has a sixteenth of that.
	bundleBytes = 16 << 20
	smallShare  = 16
	// bundleFiles is the most files of a bundle.
	bundleFiles = 4096
)

// fileRange is some consecutive inputs.
type fileRange struct{ from, to int }

// bundles divides the inputs into sections: bundles of small files, and all others alone. It
// depends on the order and sizes of the files alone, which a resumed job compares. size is
// that of a bundle, 0 for none.
func (i *inputs) bundles(size int64) (all []fileRange) {
	small := func(f inputFile) bool { return f.stream == nil && f.info.Size() <= size/smallShare && size > 0 }
	var bytes int64
	for k, file := range i.files {
		last := len(all) - 1
		if last >= 0 && small(file) && small(i.files[k-1]) && file.kind.Rows() == i.files[k-1].kind.Rows() &&
			bytes < size && k-all[last].from < bundleFiles {
			all[last].to = k + 1
		} else {
			all = append(all, fileRange{k, k + 1})
			bytes = 0
		}
		if file.stream == nil {
			bytes += file.info.Size()
		}
	}
	return all
}
