package spec

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/encode/table"
	"github.com/gpurun/gpurun/internal/files"
)

// Target is a place for results: a file, a folder of parts, or a stream. At decides which.
type Target struct {
	Name string // as the user wrote it; "" for none
	kind kind
}

type kind int

const (
	file   kind = iota
	parts       // a folder; the name ends in /
	stream      // standard output, a pipe, a device: written as results arrive
)

func (k kind) String() string { return []string{"a file", "a folder of parts", "a stream"}[k] }

// At returns the target with a name.
func At(name string) Target {
	t := Target{Name: name}
	path := files.Absolute(name)
	info, err := os.Stat(name)
	switch {
	case name == "":
	case strings.HasSuffix(name, "/"):
		t.kind = parts
	case name == "-", strings.HasPrefix(path, "/dev/") && !strings.HasPrefix(path, "/dev/shm/"),
		err == nil && !info.Mode().IsRegular() && !info.IsDir():
		t.kind = stream
	}
	return t
}

// Absolute returns the full name. That of a folder of parts ends in a slash, too.
func Absolute(name string) string {
	if name == "" || name == "-" {
		return name
	}
	if strings.HasSuffix(name, "/") {
		return files.Absolute(name) + "/"
	}
	return files.Absolute(name)
}

// Renamed returns the full name of a target of the same kind at another path.
func (t Target) Renamed(name string) string {
	if t.kind == parts {
		return files.Absolute(name) + "/"
	}
	return files.Absolute(name)
}

// Kept reports whether what is written can be read again.
func (t Target) Kept() bool { return t.Name != "" && t.kind != stream }

// Bytes returns the size of the results, -1 if there are none.
func (t Target) Bytes() int64 {
	if t.kind == parts {
		m, err := commit.ReadManifest(t.Name)
		if err != nil {
			return -1
		}
		return m.Bytes
	}
	info, err := os.Stat(t.Name)
	if err != nil {
		return -1
	}
	return info.Size()
}

// Length returns how long the results are in the positions of failures: bytes before encoding, given
// their size now and, of a file, the one before, -1 if that is unknown; or rows of a table.
func (t Target) Length(f encode.Format, bytes, unencoded int64) (length int64, err error) {
	switch {
	case t.kind != parts && f.Table:
		return tableRows(t.Name, table.Of(f.Name))
	case t.kind != parts:
		if length = f.Length(bytes, unencoded); length < 0 {
			err = os.ErrNotExist
		}
		return length, err
	}
	m, err := commit.ReadManifest(t.Name)
	for _, part := range m.Parts {
		length += part.Length()
	}
	return length, err
}

// tableRows returns how many rows a table has.
func tableRows(path string, f table.Format) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return f.Rows(file, info.Size())
}

// Modified returns when the results were last written.
func (t Target) Modified() (last time.Time) {
	paths := []string{t.Name}
	if t.kind == parts {
		paths, _ = filepath.Glob(filepath.Join(t.Name, "*"))
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// Compare reads the results and returns how they differ from what was written: from its
// size, and from the checksum of a file. Those of parts are in their manifest.
func (t Target) Compare(ctx context.Context, bytes int64, crc *chunk.CRC) error {
	if t.kind == parts || files.IsFolder(t.Name) {
		m, err := commit.ReadManifest(t.Name)
		if err == nil && m.Bytes != bytes {
			err = fmt.Errorf("its parts have %d bytes instead of %d", m.Bytes, bytes)
		}
		if err == nil {
			err = m.Check(ctx, t.Name)
		}
		return err
	}
	sum, err := chunk.SumFile(ctx, t.Name)
	switch is := chunk.CRC(sum.CRC); {
	case err != nil:
		return err
	case sum.Bytes != bytes:
		return fmt.Errorf("it has %d bytes instead of %d", sum.Bytes, bytes)
	case crc == nil || is != *crc:
		return fmt.Errorf("it has checksum %s instead of %v", is, crc)
	}
	return nil
}

// Parts returns the manifest of a folder of parts that a retry may replace; nil for a file.
func (t Target) Parts() (*commit.Manifest, error) {
	if t.kind != parts {
		return nil, nil
	}
	m, err := commit.ReadManifest(t.Name)
	if err == nil {
		err = commit.Replaceable(t.Name)
	}
	return &m, err
}

// Link gives the results a second name.
func (t Target) Link(name string) error {
	if t.kind != parts {
		return commit.LinkFile(files.Absolute(t.Name), files.Absolute(name))
	}
	if err := os.MkdirAll(name, 0o777); err != nil {
		return err
	}
	entries, err := os.ReadDir(t.Name)
	for _, entry := range entries {
		if err := commit.LinkFile(filepath.Join(t.Name, entry.Name()), filepath.Join(name, entry.Name())); err != nil {
			return err
		}
	}
	return err
}

// stdoutNames are the names of this process's standard output. If it is a file, it is
// written at the position where the shell opened it and never replaced.
var stdoutNames = []string{"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}
