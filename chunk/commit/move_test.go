package commit

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/internal/disktest"
	"github.com/gpurun/gpurun/internal/fault"
)

// fileSystems are the kinds of file systems that an output may be on, seen from the job
// folder.
var fileSystems = map[string]func(t *testing.T) (work string){
	"can link": func(t *testing.T) string { return t.TempDir() },
	"can only replace": func(t *testing.T) string {
		without(t, syscall.ENOSYS)
		linkNames = func(string, string) error { return syscall.EPERM }
		return t.TempDir()
	},
	"another": func(t *testing.T) string { return disktest.Mount(t, "64k") },
}

// TestNameFile: an existing file stays unless it may be replaced, and the new one keeps its
// temporary name. A copy of the same file that a crash left does not get in the way.
func TestNameFile(t *testing.T) {
	for system, mount := range fileSystems {
		for name, c := range map[string]struct {
			prepare func(t *testing.T, temporary, path string)
			replace bool
			refused bool
		}{
			"free":            {prepare: func(*testing.T, string, string) {}},
			"taken":           {prepare: func(t *testing.T, _, path string) { chunktest.Write(t, path, []byte("old")) }, refused: true},
			"taken, replaced": {prepare: func(t *testing.T, _, path string) { chunktest.Write(t, path, []byte("old")) }, replace: true},
			"taken by longer": {prepare: func(t *testing.T, _, path string) { chunktest.Write(t, path, []byte("new and more")) }, refused: true},
			"taken by a folder": {
				prepare: func(t *testing.T, _, path string) { chunktest.Must(t, os.Mkdir(path, 0o777)) }, refused: true,
			},
			"folder, replaced": {
				prepare: func(t *testing.T, _, path string) { chunktest.Must(t, os.Mkdir(path, 0o777)) }, replace: true, refused: true,
			},
			"killed after copying": {prepare: func(t *testing.T, _, path string) { chunktest.Write(t, path, []byte("new")) }},
			"killed after linking": {prepare: func(t *testing.T, temporary, path string) {
				chunktest.Must(t, LinkFile(temporary, path))
			}},
			"dangling link": {prepare: func(t *testing.T, _, path string) { chunktest.Must(t, os.Symlink("nowhere", path)) }},
		} {
			t.Run(system+", "+name, func(t *testing.T) {
				temporary := chunktest.Write(t, filepath.Join(mount(t), "partial"), []byte("new"))
				path := filepath.Join(t.TempDir(), "out")
				c.prepare(t, temporary, path)
				before, _ := os.ReadFile(path)
				err := NameFile(temporary, path, c.replace)
				after, _ := os.ReadFile(path)
				_, waits := os.Stat(temporary)
				if c.refused {
					chunktest.WantKind(t, err, fault.Conflict)
					if string(after) != string(before) || waits != nil {
						t.Errorf("%q became %q, and the file: %v", before, after, waits)
					}
				} else if chunktest.Must(t, err); string(after) != "new" || waits == nil {
					t.Errorf("output %q, waits %t", after, waits == nil)
				}
				if left := chunktest.Files(t, filepath.Dir(path)); len(left) != 1 {
					t.Errorf("left: %v", left)
				}
			})
		}
	}
}
