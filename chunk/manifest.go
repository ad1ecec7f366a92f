package chunk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// ManifestFile is the name of the manifest in a folder of parts.
const ManifestFile = "manifest.json"

// ManifestVersion is the version in it.
const ManifestVersion = 1

const manifestFormat = "gpurun-parts"

// Manifest says what a folder of parts holds: an output in several files, whose
// concatenation in order is the output in one.
type Manifest struct {
	// Format is gpurun-parts, Version that of the format.
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Counts are those of the job, Lines and Bytes those of all parts.
	Counts
	Lines int64          `json:"lines"`
	Bytes int64          `json:"bytes"`
	Parts []ManifestPart `json:"parts"`
}

// ManifestPart is one of the files.
type ManifestPart struct {
	Name string `json:"name"`
	// First is the number of its first record in the input, and Records how many
	// records of the input are in it, dropped ones and those in an errors file
	// too.
	First   int64 `json:"first"`
	Records int64 `json:"records"`
	Lines   int64 `json:"lines"`
	Bytes   int64 `json:"bytes"`
	CRC32C  CRC   `json:"crc32c"`
}

// partName is the name of the part with this number.
func partName(number int) string { return fmt.Sprintf("part-%05d.jsonl", number) }

// NewManifest is the manifest of parts that hold what became of so many records.
func NewManifest(parts []ManifestPart, counts Counts) Manifest {
	m := Manifest{Format: manifestFormat, Version: ManifestVersion, Counts: counts, Parts: parts}
	for _, p := range parts {
		m.Lines += p.Lines
		m.Bytes += p.Bytes
	}
	return m
}

// ReadManifest reads the manifest of a folder.
func ReadManifest(dir string) (Manifest, error) {
	var m Manifest
	path := filepath.Join(dir, ManifestFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if m.Format != manifestFormat || m.Version != ManifestVersion {
		return m, fmt.Errorf("%s is %q of version %d, this gpurun writes %q of version %d",
			path, m.Format, m.Version, manifestFormat, ManifestVersion)
	}
	for i, p := range m.Parts {
		if p.Name != partName(i) {
			return m, fmt.Errorf("%s is damaged: part %d is called %q", path, i, p.Name)
		}
	}
	return m, nil
}

func (m Manifest) encode() ([]byte, error) {
	data, err := json.MarshalIndent(m, "", "  ")
	return append(data, '\n'), err
}

// Check reads the parts in a folder and says which is not what the manifest says. It stops
// when ctx ends.
func (m Manifest) Check(ctx context.Context, dir string) error {
	if err := m.checkSizes(dir); err != nil {
		return err
	}
	for _, p := range m.Parts {
		sum, err := SumFile(ctx, filepath.Join(dir, p.Name))
		if err != nil {
			return err
		}
		if CRC(sum.CRC) != p.CRC32C {
			return fmt.Errorf("%s has checksum %s, and %s was written", filepath.Join(dir, p.Name), CRC(sum.CRC), p.CRC32C)
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
			return fmt.Errorf("%s has %d bytes, and %d were written", filepath.Join(dir, p.Name), info.Size(), p.Bytes)
		}
	}
	return nil
}

// heldBy reports whether a folder is the one that the manifest describes.
func (m Manifest) heldBy(dir string) bool {
	want, err := m.encode()
	if err != nil {
		return false
	}
	got, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	return err == nil && bytes.Equal(got, want) && m.Check(context.Background(), dir) == nil
}

// Replaceable says why a folder must not be replaced by another output: there is
// something in it that gpurun has not written. A folder that is not there or
// empty may be.
func Replaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	m, err := ReadManifest(dir)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s has no %s, so it is no output of gpurun", dir, ManifestFile)
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		known := slices.ContainsFunc(m.Parts, func(p ManifestPart) bool { return p.Name == name })
		if name != ManifestFile && !known {
			return fmt.Errorf("%s holds %s, which is no part of gpurun's output", dir, name)
		}
	}
	return nil
}
