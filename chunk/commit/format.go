package commit

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// foreignNames are file name extensions of formats that gpurun does not write. An output
// named after one would be rejected by its readers. .json is not among them: JSON lines
// files often have it.
var foreignNames = []string{
	".gz", ".tgz", ".bgz", ".zst", ".zstd", ".bz2", ".xz", ".lz4", ".br", ".zip", ".tar", ".7z",
	".parquet", ".pq", ".csv", ".tsv", ".arrow", ".feather", ".ipc", ".orc", ".avro",
	".npy", ".npz", ".h5", ".hdf5", ".pt", ".safetensors", ".pkl", ".pickle",
	".xls", ".xlsx", ".sqlite", ".db", ".duckdb", ".xml", ".yaml", ".yml",
}

// CheckName refuses an output whose name implies a format that it would not have.
func CheckName(what, path string) error {
	ending := strings.ToLower(filepath.Ext(strings.TrimRight(path, "/")))
	if !slices.Contains(foreignNames, ending) {
		return nil
	}
	return fault.New(fault.Usage, "the %s %s would contain JSON lines, but its name ends in %s; use .jsonl, or convert the output of a pipe", what, path, ending)
}
