package commit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/files"
)

// ManifestEnding follows the name of a folder of parts in the name of its manifest, which lies beside
// it: programs that read a folder of Parquet files or lines take every file in it for data.
const ManifestEnding = ".manifest.json"

// ManifestPath returns the path of the manifest of a folder of parts.
func ManifestPath(dir string) string {
	return files.RealPath(filepath.Clean(dir)) + ManifestEnding
}

// ManifestVersion is the version of the manifest format.
const ManifestVersion = 1

const manifestFormat = "gpurun-parts"

// Manifest describes a folder of parts: an output in several files whose concatenation in
// order is the whole output.
type Manifest struct {
	// Format is gpurun-parts, Version is the version of the format.
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Encoding is the format of encoded parts; omitted for plain lines.
	Encoding string `json:"encoding,omitempty"`
	// Counts counts the records of the job; Lines and Bytes are the totals of all parts.
	chunk.Counts
	Lines int64          `json:"lines"`
	Bytes int64          `json:"bytes"`
	Parts []ManifestPart `json:"parts"`
}

// ManifestPart is one file of the output.
type ManifestPart struct {
	Name string `json:"name"`
	// First is the number of its first record in the input. Records is the number of input
	// records it covers, including dropped ones and those in a separate errors file.
	First   int64     `json:"first"`
	Records int64     `json:"records"`
	Lines   int64     `json:"lines"`
	Bytes   int64     `json:"bytes"`
	CRC32C  chunk.CRC `json:"crc32c"`
	// Unencoded is the number of bytes before encoding; omitted for a table.
	Unencoded int64 `json:"unencoded_bytes,omitempty"`
}

// Length returns how long the part is in the positions of failures: bytes before encoding, or rows
// of a table.
func (p ManifestPart) Length() int64 { return cmp.Or(p.Unencoded, p.Lines) }

// partName returns the name of the part with this number.
func partName(number int, format encode.Format) string {
	if !format.Encodes() {
		format = encode.Lines()
	}
	return fmt.Sprintf("part-%05d%s", number, format.Ending())
}

// NewManifest returns the manifest of parts that hold the outcome of the counted records.
func NewManifest(parts []ManifestPart, counts chunk.Counts, format encode.Format) Manifest {
	m := Manifest{Format: manifestFormat, Version: ManifestVersion, Counts: counts, Parts: slices.Clone(parts)}
	if format.Encodes() {
		m.Encoding = format.Name
	}
	for i, p := range parts {
		m.Lines += p.Lines
		m.Bytes += p.Bytes
		if format.Table {
			m.Parts[i].Unencoded = 0
		}
	}
	return m
}

// ReadManifest reads the manifest of a folder.
func ReadManifest(dir string) (Manifest, error) {
	var m Manifest
	path := ManifestPath(dir)
	data, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if m.Format != manifestFormat || m.Version != ManifestVersion {
		return m, fmt.Errorf("%s has format %q version %d, but this gpurun writes format %q version %d",
			path, m.Format, m.Version, manifestFormat, ManifestVersion)
	}
	format, err := encode.ByName(m.Encoding)
	if err != nil {
		return m, fmt.Errorf("%s: %w", path, err)
	}
	for i, p := range m.Parts {
		if p.Name != partName(i, format) {
			return m, fmt.Errorf("%s is damaged: part %d is named %q", path, i, p.Name)
		}
	}
	return m, nil
}

func (m Manifest) encode() ([]byte, error) {
	data, err := json.MarshalIndent(m, "", "  ")
	return append(data, '\n'), err
}

// Check reads the parts in a folder and returns an error that names one that does not match
// the manifest. It stops when ctx ends.
func (m Manifest) Check(ctx context.Context, dir string) error {
	if err := m.checkSizes(dir); err != nil {
		return err
	}
	for _, p := range m.Parts {
		sum, err := chunk.SumFile(ctx, filepath.Join(dir, p.Name))
		if err != nil {
			return err
		}
		if chunk.CRC(sum.CRC) != p.CRC32C {
			return fmt.Errorf("%s has checksum %s instead of %s", filepath.Join(dir, p.Name), chunk.CRC(sum.CRC), p.CRC32C)
		}
	}
	return nil
}

func (m Manifest) checkSizes(dir string) error {
	for _, p := range m.Parts {
		info, err := os.Stat(filepath.Join(dir, p.Name))
		if err != nil {
			return err
		}
		if info.Size() != p.Bytes {
			return fmt.Errorf("%s has %d bytes instead of %d", filepath.Join(dir, p.Name), info.Size(), p.Bytes)
		}
	}
	return nil
}

// heldBy reports whether a folder is the one that the manifest describes.
func (m Manifest) heldBy(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == len(m.Parts) && m.Check(context.Background(), dir) == nil
}

// Replaceable returns an error if a folder must not be replaced by another output because
// it contains something that gpurun did not write, or if the file where its manifest belongs is
// not one. A missing or empty folder is replaceable.
func Replaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	m, err := ReadManifest(dir)
	if errors.Is(err, os.ErrNotExist) {
		if len(entries) == 0 {
			return nil
		}
		return fmt.Errorf("%s has no manifest (%s), so it is not a gpurun output", dir, ManifestPath(dir))
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if !slices.ContainsFunc(m.Parts, func(p ManifestPart) bool { return p.Name == name }) {
			return fmt.Errorf("%s contains %s, which is not part of gpurun's output", dir, name)
		}
	}
	return nil
}
