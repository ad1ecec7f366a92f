package orchestrator_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// checkModes: only the owner can read the job folder, and the output has the mode that
// the umask gives it.
func checkModes(t *testing.T, c orchestrator.Config, outputs ...string) {
	t.Helper()
	err := filepath.WalkDir(jobFolder(c), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if strings.Contains(path, ".partial") && !strings.Contains(path, "failures") {
			return nil // it becomes the output
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			t.Errorf("%s has mode %o", path, mode)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	mode := func(path string) os.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	likeFile, likeFolder := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "folder")
	if err := errors.Join(os.WriteFile(likeFile, nil, 0o666), os.Mkdir(likeFolder, 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, path := range outputs {
		if got := mode(path); got != mode(likeFile) && got != mode(likeFolder) {
			t.Errorf("%s has mode %v, a file has %v", path, got, mode(likeFile))
		}
	}
}

// TestJobFolderIsPrivate: a configuration may hold secrets, and failures quote records;
// an older folder that others can read is closed to them.
func TestJobFolderIsPrivate(t *testing.T) {
	t.Parallel()
	for _, parts := range []bool{false, true} {
		t.Run(fmt.Sprintf("parts %t", parts), func(t *testing.T) {
			t.Parallel()
			v := &variant{name: "private", records: 480, change: func(d jobDir, c *orchestrator.Config) {
				c.Output.Errors = d.join("errors.jsonl")
				if parts {
					c.Output.Path, c.Output.PartBytes = d.join("out")+"/", 500
				}
			}}
			d, c := v.start(t)
			interrupt(t, c, "chunk_done", 3)
			checkModes(t, c)
			if err := os.Chmod(jobFolder(c), 0o777); err != nil {
				t.Fatal(err)
			}
			resumes(t, d, c)
			outputs := []string{c.Output.Path, c.Output.Errors}
			if parts {
				outputs = append(outputs, c.Output.Path+"part-00000.jsonl", d.join("out.manifest.json"))
			}
			checkModes(t, c, outputs...)
		})
	}
}

// TestJobFolderOfAnother: a folder that another user placed there, or a link to one, is
// refused before anything in it is read or removed.
func TestJobFolderOfAnother(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root can give a folder to another user")
	}
	const nobody = 65534
	for name, plant := range map[string]func(d jobDir, folder string) error{
		"folder": func(_ jobDir, folder string) error {
			if err := os.Mkdir(folder, 0o777); err != nil {
				return err
			}
			return os.Chown(folder, nobody, nobody)
		},
		"link": func(d jobDir, folder string) error {
			if err := os.Symlink(d.join("own"), folder); err != nil {
				return err
			}
			return os.Lchown(folder, nobody, nobody)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, numbered(10))
			c := d.config("echo")
			if err := os.Mkdir(d.join("own"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := plant(d, jobFolder(c)); err != nil {
				t.Fatal(err)
			}
			precious := filepath.Join(jobFolder(c), "precious")
			if err := os.WriteFile(precious, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := run(t, c)
			wantFault(t, err, fault.Conflict, jobFolder(c), "not to you")
			if !exists(precious) {
				t.Error("its contents were removed")
			}
		})
	}
}

// TestOwnLinkToJobFolder: a user's own link is followed.
func TestOwnLinkToJobFolder(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(10))
	c := d.config("echo")
	if err := os.Mkdir(d.join("scratch"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(d.join("scratch"), jobFolder(c)); err != nil {
		t.Fatal(err)
	}
	mustRun(t, d, c)
	if !exists(d.join("scratch/report.json")) {
		t.Error("the link was not followed")
	}
}
