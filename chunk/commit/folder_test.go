package commit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/disktest"
	"github.com/gpurun/gpurun/internal/fault"
)

// folderOptions returns the options of a job with a folder of parts.
func (j *job) folderOptions(t testing.TB, bytes int64) Options {
	return Options{
		Path: filepath.Join(j.dir, "out") + "/", PartBytes: bytes, Errors: j.err, WorkDir: j.work(), Journal: j.journal(t),
	}
}

// TestPartFolder covers borders, counts, and records without bytes.
func TestPartFolder(t *testing.T) {
	j := newJob(t)
	o, err := Create(j.folderOptions(t, 10))
	chunktest.Must(t, err)
	border := func(s chunk.Segment, inner bool) chunk.Segment {
		s.Inner = inner
		return s
	}
	chunktest.Must(t, o.Commit(border(j.segment(t, 0, 9, true), true)))    // 6 bytes
	chunktest.Must(t, o.Commit(border(j.segment(t, 9, 6, true), true)))    // "9", "12": 11 bytes, inside a chunk
	chunktest.Must(t, o.Commit(border(j.segment(t, 16, 2, true), true)))   // waits
	chunktest.Must(t, o.Commit(border(j.segment(t, 15, 1, true), false)))  // the first part ends here
	chunktest.Must(t, o.Commit(border(j.segment(t, 18, 12, true), false))) // and the second here, with 18 to 27 and the two before without a line
	chunktest.Must(t, o.Commit(border(j.segment(t, 31, 2, true), false)))  // waits
	chunktest.Must(t, o.Commit(border(j.segment(t, 30, 1, true), true)))
	chunktest.Must(t, o.Finish())
	m, err := ReadManifest(filepath.Join(j.dir, "out"))
	chunktest.Must(t, err)
	out := contents(t, filepath.Join(j.dir, "out"))
	part := func(n int, first, records, lines int64, data string) ManifestPart {
		if out[linesPart(n)] != data {
			t.Errorf("part %d is %q", n, out[linesPart(n)])
		}
		return ManifestPart{
			Name: linesPart(n), First: first, Records: records, Lines: lines, Bytes: int64(len(data)),
			CRC32C: chunk.Checksum([]byte(data)), Unencoded: int64(len(data)),
		}
	}
	want := Manifest{
		Format: "gpurun-parts", Version: 1, Counts: chunk.Counts{Records: 33, Succeeded: 11, Failed: 11, Dropped: 11}, Lines: 11, Bytes: 29,
		Parts: []ManifestPart{
			part(0, 0, 16, 6, "0\n3\n6\n9\n12\n15\n"),
			part(1, 16, 14, 4, "18\n21\n24\n27\n"),
			part(2, 30, 3, 1, "30\n"),
		},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
	if got := chunktest.Files(t, j.work()); fmt.Sprint(got) != "[failures.jsonl journal parts]" {
		t.Errorf("job folder: %v", got)
	}
}

// TestPartFolderEmpty: an empty output is a folder with an empty part.
func TestPartFolderEmpty(t *testing.T) {
	j := newJob(t)
	options := j.folderOptions(t, 10)
	options.First = 7
	o, err := Create(options)
	chunktest.Must(t, err)
	chunktest.Must(t, o.Finish())
	m, err := ReadManifest(filepath.Join(j.dir, "out"))
	chunktest.Must(t, err)
	if diff := cmp.Diff([]ManifestPart{{Name: "part-00000.jsonl", First: 7}}, m.Parts); diff != "" {
		t.Error(diff)
	}
	chunktest.Must(t, m.Check(t.Context(), filepath.Join(j.dir, "out")))
}

// TestReplaceable: a folder may be replaced only if gpurun wrote everything in it.
func TestReplaceable(t *testing.T) {
	for name, c := range map[string]struct {
		make func(dir string) error
		want string // empty: replaceable
	}{
		"absent":  {func(dir string) error { return os.RemoveAll(dir) }, ""},
		"empty":   {func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o777)) }, ""},
		"ours":    {func(string) error { return nil }, ""},
		"changed": {func(dir string) error { return os.WriteFile(filepath.Join(dir, linesPart(0)), nil, 0o600) }, ""},
		"foreign": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600) }, "notes.txt"},
		"part too many": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, linesPart(1)), nil, 0o600)
		}, linesPart(1)},
		"no manifest": {func(dir string) error { return os.Remove(ManifestPath(dir)) }, "no manifest"},
		"another's manifest": {func(dir string) error {
			return os.WriteFile(ManifestPath(dir), []byte(`{"name":"web app"}`), 0o600)
		}, "this gpurun writes"},
		"no JSON": {func(dir string) error {
			return os.WriteFile(ManifestPath(dir), []byte(`#`), 0o600)
		}, "damaged"},
		"a file": {func(dir string) error {
			_ = os.RemoveAll(dir)
			return os.WriteFile(dir, nil, 0o600)
		}, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			olderParts(t, dir)
			chunktest.Must(t, c.make(dir))
			err := Replaceable(dir)
			if c.want == "" {
				chunktest.Must(t, err)
			} else if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// newFolder returns a folder of parts that has no final name yet.
func newFolder(t *testing.T) (temporary, path string, m Manifest) {
	t.Helper()
	dir := t.TempDir()
	temporary, path = filepath.Join(dir, "output.partial"), filepath.Join(dir, "out")
	chunktest.Must(t, os.Mkdir(temporary, 0o777))
	chunktest.Write(t, filepath.Join(temporary, linesPart(0)), []byte("new\n"))
	sum, err := chunk.SumFile(t.Context(), filepath.Join(temporary, linesPart(0)))
	chunktest.Must(t, err)
	m = NewManifest([]ManifestPart{{Name: linesPart(0), Records: 1, Lines: 1, Bytes: 4, CRC32C: chunk.CRC(sum.CRC)}}, chunk.Counts{Records: 1, Succeeded: 1}, encode.Lines())
	return temporary, path, m
}

// without simulates a file system that cannot exchange names.
func without(t *testing.T, err error) {
	exchangeNames = func(string, string) error { return err }
	t.Cleanup(func() { exchangeNames, linkNames = exchange, os.Link })
}

// TestNameFolder: whatever is in the way, and however often it is repeated, the new folder
// gets the name, and nothing else remains.
func TestNameFolder(t *testing.T) {
	nothing := func(*testing.T, string, string) {}
	older := func(t *testing.T, _, path string) { olderParts(t, path) }
	for name, prepare := range map[string]func(t *testing.T, temporary, path string){
		"nothing": nothing,
		"empty folder": func(t *testing.T, _, path string) {
			chunktest.Must(t, os.Mkdir(path, 0o777))
		},
		"older parts": older,
		"older parts, no exchange": func(t *testing.T, temporary, path string) {
			without(t, syscall.EINVAL)
			olderParts(t, path)
		},
		"killed after the older parts were set aside": func(t *testing.T, _, path string) {
			olderParts(t, path)
			chunktest.Must(t, os.Rename(path, path+oldSuffix))
		},
		"killed while copying from another file system": func(t *testing.T, _, path string) {
			chunktest.Must(t, os.Mkdir(path+asideSuffix, 0o777))
			chunktest.Write(t, filepath.Join(path+asideSuffix, linesPart(0)), []byte("ne"))
		},
		"killed after the exchange": func(t *testing.T, temporary, path string) {
			olderParts(t, path)
			chunktest.Must(t, exchange(temporary, path))
		},
		"killed after the exchange, damaged": func(t *testing.T, temporary, path string) {
			_, _, m := newFolder(t)
			chunktest.Must(t, os.CopyFS(path, os.DirFS(temporary)))
			chunktest.Must(t, m.write(path))
			chunktest.Write(t, filepath.Join(path, linesPart(0)), []byte("bad\n"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			temporary, path, m := newFolder(t)
			prepare(t, temporary, path)
			for range 2 {
				chunktest.Must(t, NameFolder(temporary, path, m, true))
				if !m.heldBy(path) {
					t.Errorf("in the folder: %v", contents(t, path))
				}
				if got, err := ReadManifest(path); err != nil || !cmp.Equal(got, m) {
					t.Errorf("manifest %+v, %v", got, err)
				}
				if got := chunktest.Files(t, filepath.Dir(path)); len(got) != 2 {
					t.Errorf("left: %v", got)
				}
			}
		})
	}
}

// TestNameFolderRefuses: a folder that is not gpurun's stays, and the new one keeps its
// temporary name.
func TestNameFolderRefuses(t *testing.T) {
	temporary, path, m := newFolder(t)
	olderParts(t, path)
	chunktest.Write(t, filepath.Join(path, "notes.txt"), []byte("mine"))
	chunktest.WantKind(t, NameFolder(temporary, path, m, true), fault.Conflict)
	if got := chunktest.Files(t, path); len(got) != 2 {
		t.Errorf("in the old folder: %v", got)
	}
	chunktest.Must(t, os.Remove(filepath.Join(path, "notes.txt")))
	chunktest.WantKind(t, NameFolder(temporary, path, m, false), fault.Conflict)
	chunktest.Must(t, NameFolder(temporary, path, m, true))

	temporary, path, m = newFolder(t)
	chunktest.Must(t, os.Truncate(filepath.Join(temporary, linesPart(0)), 2))
	chunktest.WantKind(t, NameFolder(temporary, path, m, true), fault.Conflict)
}

// TestPartFolderResumeRefuses: parts do not match the durable point.
func TestPartFolderResumeRefuses(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"finished part missing": func(dir string) error { return os.Remove(filepath.Join(dir, linesPart(0))) },
		"finished part cut":     func(dir string) error { return os.Truncate(filepath.Join(dir, linesPart(0)), 3) },
		"last part cut":         func(dir string) error { return os.Truncate(filepath.Join(dir, linesPart(1)), 1) },
		"last part missing":     func(dir string) error { return os.Remove(filepath.Join(dir, linesPart(1))) },
		"last part a folder": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, linesPart(1))), os.Mkdir(filepath.Join(dir, linesPart(1)), 0o700))
		},
		"a file": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t)
			options := j.folderOptions(t, 4)
			o, err := Create(options)
			chunktest.Must(t, err)
			chunktest.Must(t, o.Commit(j.segment(t, 0, 6, true)))
			chunktest.Must(t, o.Commit(j.segment(t, 6, 6, true)))
			o.Abandon()
			entries, err := ReadJournal(options.Journal.path)
			chunktest.Must(t, err)
			state, err := Replay(entries)
			chunktest.Must(t, err)
			chunktest.Must(t, damage(filepath.Join(j.work(), "output.partial")))
			_, err = Resume(options, state)
			chunktest.WantKind(t, err, fault.Conflict)
		})
	}
}

// TestPartFolderFull: the disk fills up while a part is begun or written; once there is
// space again, the output is complete.
func TestPartFolderFull(t *testing.T) {
	j := newJob(t)
	options := j.folderOptions(t, 3000)
	tiny := disktest.Mount(t, "24k")
	chunktest.Must(t, os.Symlink(tiny, filepath.Join(j.work(), "output.partial")))
	o, err := Create(options)
	chunktest.Must(t, err)
	var full error
	first := int64(0)
	for ; full == nil && first < 100_000; first += 600 {
		full = o.Commit(j.segment(t, first, 600, true))
	}
	chunktest.WantKind(t, full, fault.Storage)
	o.Abandon()
	entries, err := ReadJournal(options.Journal.path)
	chunktest.Must(t, err)
	state, err := Replay(entries)
	chunktest.Must(t, err)
	chunktest.Must(t, os.Remove(filepath.Join(j.work(), "output.partial")))
	chunktest.Must(t, os.CopyFS(filepath.Join(j.work(), "output.partial"), os.DirFS(tiny)))
	chunktest.Must(t, state.Verify(j.parts(), options.Journal))
	o, err = Resume(options, state)
	chunktest.Must(t, err)
	chunktest.Must(t, o.Finish())
	m, err := ReadManifest(filepath.Join(j.dir, "out"))
	chunktest.Must(t, err)
	chunktest.Must(t, m.Check(t.Context(), filepath.Join(j.dir, "out")))
	want, _ := expected(0, first, true)
	var got strings.Builder
	for _, p := range m.Parts {
		got.WriteString(contents(t, filepath.Join(j.dir, "out"))[p.Name])
	}
	if got.String() != want || len(m.Parts) < 3 {
		t.Errorf("%d parts of %d bytes, want %d", len(m.Parts), got.Len(), len(want))
	}
}

// TestManifestDocument: the document describes every field.
func TestManifestDocument(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "internals", "journal-format.md"))
	chunktest.Must(t, err)
	data, err := json.Marshal(NewManifest([]ManifestPart{{Name: linesPart(0)}}, chunk.Counts{}, encode.Lines()))
	chunktest.Must(t, err)
	for _, field := range fields(string(data)) {
		if !strings.Contains(string(document), "`"+field+"`") {
			t.Errorf("field %s is not described", field)
		}
	}
}
