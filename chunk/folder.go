package chunk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// A target may be a folder: then what is appended goes to the newest of the parts
// in it, and the folder gets its name when all of them are there.

// Beside an output's name: where a folder is copied to from another file system,
// and where one is put that is being replaced, if two cannot be exchanged.
const (
	asideSuffix = ".gpurun-partial"
	oldSuffix   = ".gpurun-old"
)

// openPartFolder goes on with a folder that holds these parts, of which the last
// is being written: what else is in it is removed, or cut off.
func openPartFolder(path, temporary string, parts []ManifestPart) (target, error) {
	if err := os.MkdirAll(temporary, 0o777); err != nil {
		return target{}, notCreated(err)
	}
	entries, err := os.ReadDir(temporary)
	if err != nil {
		return target{}, fault.New(fault.Storage, "open output: %w", err)
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

// cutPart cuts off what somebody put behind a finished part.
func cutPart(path string, size int64) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() < size {
		return fault.New(fault.Conflict, "the output is not what was written: %s is missing or too short; --fresh starts the job over", path)
	}
	if info.Size() == size {
		return nil
	}
	if err := os.Truncate(path, size); err != nil {
		return fault.New(fault.Storage, "cut output: %w", err)
	}
	return nil
}

// openPart lets what follows go to the part of this name.
func (t *target) openPart(name string) error {
	file, err := os.OpenFile(filepath.Join(t.temporary, name), os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, PublicMode)
	if err != nil {
		return notCreated(err)
	}
	t.file, t.writer, t.unnamed, t.begun = file, file, true, t.size
	return nil
}

// nextPart ends a part, durably, and begins the next.
func (t *target) nextPart(name string) error {
	err := t.sync()
	t.close()
	if err != nil {
		return err
	}
	return t.openPart(name)
}

// finishFolder gives the folder its name, with its manifest in it.
func (t *target) finishFolder(m Manifest, replace bool) error {
	err := t.sync()
	t.close()
	if err != nil {
		return err
	}
	return NameFolder(t.temporary, t.path, m, replace)
}

// NameFolder gives a folder of durable parts its manifest and its name, durably;
// a folder that has the name already is, if that is wanted, exchanged for it at
// once, and removed; else it is a fault, unless it is empty, and the new one waits.
// After a crash it is called again, and goes on from wherever that came.
func NameFolder(temporary, path string, m Manifest, replace bool) error {
	path = RealPath(filepath.Clean(path))
	aside := path + asideSuffix
	if !m.heldBy(path) {
		if err := m.checkSizes(temporary); err != nil {
			return fault.New(fault.Conflict, "the job was complete, but its output is not what it wrote: %w; --fresh starts it over", err)
		}
		if err := m.write(temporary); err != nil {
			return storageOf(path, err)
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
	if err := syncDir(filepath.Dir(path)); err != nil {
		return storageOf(path, err)
	}
	// What was replaced, and what was copied.
	for _, left := range []string{temporary, aside, path + oldSuffix} {
		removeParts(left)
	}
	return nil
}

func (m Manifest) write(dir string) error {
	data, err := m.encode()
	if err != nil {
		return err
	}
	return WriteDurably(filepath.Join(dir, ManifestFile), data, PublicMode)
}

// takeName renames a folder. One that is in the way and may be replaced must be
// gpurun's: it trades places with the new one, where the file system can do that.
func takeName(from, path string, replace bool) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		// An empty folder is replaced at once, and nothing else; os.Rename would not try.
		err = syscall.Rename(from, path)
	} else if err == nil && !replace {
		err = syscall.EEXIST
	}
	switch {
	case errors.Is(err, os.ErrExist), errors.Is(err, syscall.ENOTDIR):
		return taken(path)
	case err != nil || len(entries) == 0:
		return err
	}
	if err := Replaceable(path); err != nil {
		return fault.New(fault.Conflict, "the output folder cannot be replaced: %w; move it away and run the same command again", err)
	}
	err = exchangeNames(from, path)
	if cannotDo(err) {
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
	removeParts(to)
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	for _, p := range m.Parts {
		if err := copyFile(filepath.Join(from, p.Name), filepath.Join(to, p.Name)); err != nil {
			return err
		}
	}
	return m.write(to)
}

// removeParts removes a folder of parts, and nothing that is none.
func removeParts(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if part, _ := filepath.Match("part-*.jsonl", entry.Name()); part || entry.Name() == ManifestFile {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
	_ = os.Remove(dir)
}
