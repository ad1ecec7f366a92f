package commit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// A target may be a folder. Data is then appended to its newest part, and the folder gets its
// final name when all parts are complete.

// Suffixes of temporary names beside an output: asideSuffix for a copy from another file
// system, oldSuffix for a folder that is being replaced if the two cannot be exchanged.
const (
	asideSuffix = ".gpurun-partial"
	oldSuffix   = ".gpurun-old"
)

// openPartFolder opens a folder of parts to continue writing the last one. It removes other
// files and truncates parts that are too long.
func openPartFolder(path, temporary string, parts []ManifestPart) (target, error) {
	if err := os.MkdirAll(temporary, 0o777); err != nil {
		return target{}, createFault(err)
	}
	entries, err := os.ReadDir(temporary)
	if err != nil {
		return target{}, fault.WriteFailed.New("open output: %w", err)
	}
	for _, entry := range entries {
		if !slices.ContainsFunc(parts, func(p ManifestPart) bool { return p.Name == entry.Name() }) {
			_ = os.Remove(filepath.Join(temporary, entry.Name()))
		}
	}
	last := len(parts) - 1
	for _, p := range parts[:last] {
		if err := cutPart(filepath.Join(temporary, p.Name), p.Bytes); err != nil {
			return target{}, err
		}
	}
	t := target{path: path, temporary: temporary, parts: true}
	if err := t.openPart(parts[last].Name); err != nil {
		return target{}, err
	}
	if err := t.cut(parts[last].Bytes); err != nil {
		t.file.Close()
		return target{}, err
	}
	for _, p := range parts[:last] {
		t.begun += p.Bytes
	}
	t.size = t.begun + parts[last].Bytes
	return t, nil
}

// cutPart truncates a finished part that was appended to from outside.
func cutPart(path string, size int64) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() < size {
		return fault.JobDamaged.New("the output was changed: %s is missing or too short", path)
	}
	if info.Size() == size {
		return nil
	}
	if err := os.Truncate(path, size); err != nil {
		return fault.WriteFailed.New("truncate output: %w", err)
	}
	return nil
}

// openPart directs further writes to the part of this name.
func (t *target) openPart(name string) error {
	file, err := os.OpenFile(filepath.Join(t.temporary, name), os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, files.PublicMode)
	if err != nil {
		return createFault(err)
	}
	t.file, t.writer, t.unnamed, t.begun = file, file, true, t.size
	return nil
}

// nextPart makes the current part durable and begins the next.
func (t *target) nextPart(name string) error {
	err := t.sync()
	t.close()
	if err != nil {
		return err
	}
	return t.openPart(name)
}

// NameFolder durably gives a folder of durable parts its final name, and then its manifest. If
// the name is taken by a folder and replace is set, it exchanges the two atomically and
// removes the old one. Without replace, a folder that is not empty is a fault, and the new
// one keeps its temporary name. After a crash, calling it again continues where it stopped.
func NameFolder(temporary, path string, m Manifest, replace bool) error {
	path = files.RealPath(filepath.Clean(path))
	aside := path + asideSuffix
	if !m.heldBy(path) {
		if err := m.checkSizes(temporary); err != nil {
			return fault.JobDamaged.New("the job was complete, but its output has changed since: %w", err)
		}
		err := takeName(temporary, path, replace)
		if errors.Is(err, syscall.EXDEV) {
			if err = copyParts(temporary, aside, m); err == nil {
				crash.Point("copied")
				err = takeName(aside, path, replace)
			}
			crash.Point("moved")
		}
		if err != nil {
			return storageOf(path, err)
		}
	}
	if err := m.write(path); err != nil { // also makes the folder's name durable
		return storageOf(path, err)
	}
	// Remove what was replaced and what was copied.
	for _, rest := range []string{temporary, aside, path + oldSuffix} {
		RemoveParts(rest)
	}
	return nil
}

func (m Manifest) write(dir string) error {
	data, err := m.encode()
	if err != nil {
		return err
	}
	return files.WriteDurably(ManifestPath(dir), data, files.PublicMode)
}

// takeName renames a folder. A folder that it may replace must be a gpurun output; the two
// are exchanged if the file system supports it.
func takeName(from, path string, replace bool) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		// The system call atomically replaces an empty folder and nothing else. os.Rename
		// would refuse to.
		err = syscall.Rename(from, path)
	} else if err == nil && !replace {
		err = syscall.EEXIST
	}
	switch {
	case errors.Is(err, os.ErrExist), errors.Is(err, syscall.ENOTDIR):
		return nameTaken(path)
	case err != nil || len(entries) == 0:
		return err
	}
	if err := Replaceable(path); err != nil {
		return fault.OutputFolderChanged.New("the output folder cannot be replaced: %w; move it away and run the same command again", err)
	}
	err = exchangeNames(from, path)
	if isUnsupported(err) {
		if err = os.Rename(path, path+oldSuffix); err == nil {
			crash.Point("set-aside")
			err = os.Rename(from, path)
		}
	}
	if err == nil {
		crash.Point("exchanged")
	}
	return err
}

// copyParts makes a durable copy of a folder of parts.
func copyParts(from, to string, m Manifest) error {
	RemoveParts(to)
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	for _, p := range m.Parts {
		if err := copyFile(filepath.Join(from, p.Name), filepath.Join(to, p.Name)); err != nil {
			return err
		}
	}
	return files.SyncDir(to)
}

// RemoveParts removes a folder of parts, but no other files.
func RemoveParts(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		name, isPart := strings.CutPrefix(entry.Name(), "part-")
		if isPart && (strings.Contains(name, ".jsonl") || strings.HasSuffix(name, ".parquet") || strings.HasSuffix(name, ".arrow")) {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
	_ = os.Remove(dir)
}
