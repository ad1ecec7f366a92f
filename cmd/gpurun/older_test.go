package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// unpackJob unpacks the folder of a job into a folder with a path of its own.
func unpackJob(t *testing.T, archive string) string {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var touched time.Time
	for reader := tar.NewReader(plain); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			if err := os.Chtimes(filepath.Join(dir, "in.jsonl"), touched, touched); err != nil {
				t.Fatal(err)
			}
			return dir
		} else if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, fs.FileMode(header.Mode))
		} else {
			var data []byte
			if data, err = io.ReadAll(reader); err == nil {
				if filepath.Base(path) == "job.json" {
					data, touched = moved(t, data, dir)
				}
				err = os.WriteFile(path, data, fs.FileMode(header.Mode))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// moved returns the job.json of a job that was moved to a folder, with its checksum, and when
// its input was last modified: the first version did not look further than that.
func moved(t *testing.T, data []byte, dir string) ([]byte, time.Time) {
	t.Helper()
	var job struct {
		Sum         string
		Fingerprint struct{ Input struct{ Modified time.Time } }
	}
	if err := json.Unmarshal(data, &job); err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, bytes.ReplaceAll(data, []byte("/tmp/gpurun-fixture"), []byte(dir))); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprintf(`,"sum":%q}`, job.Sum)
	text, found := strings.CutSuffix(compact.String(), before)
	if !found {
		t.Fatalf("job.json does not end with its checksum: %s", compact.String())
	}
	sum := crc32.Checksum([]byte(text+`,"sum":""}`), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(nil, `%s,"sum":"%08x"}`, text, sum), job.Fingerprint.Input.Modified
}

// results returns the files that a job has written for its user.
func results(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasSuffix(name, ".gpurun") || name == "__pycache__"):
			return filepath.SkipDir
		case entry.IsDir():
			return nil
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func argumentsOf(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "arguments"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// TestOlderJobs: jobs that older versions began are resumed, and the output is the one that
// this version writes from the start. testdata/jobs/make.sh wrote them.
func TestOlderJobs(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("SKIPPED: no python3: the jobs of older versions have a kernel in Python")
	}
	archives, err := filepath.Glob("testdata/jobs/*.tar.gz")
	if err != nil || len(archives) < 4 {
		t.Fatalf("%q, %v", archives, err)
	}
	for _, archive := range archives {
		name := strings.TrimSuffix(filepath.Base(archive), ".tar.gz")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if older, isFinished := strings.CutSuffix(name, "-finished"); isFinished {
				finishedOlder(t, older, archive)
				return
			}
			dir := unpackJob(t, archive)
			exit, stderr := gpurun(t, dir, argumentsOf(t, dir)...)
			if exit != 3 || !strings.Contains(stderr, "400 in = 392 succeeded + 8 failed") {
				t.Fatalf("exit %d: %s", exit, stderr)
			}
			if !strings.Contains(stderr, "resum") {
				t.Errorf("not resumed: %s", stderr)
			}
			compareWithFresh(t, dir, archive)
		})
	}
}

// compareWithFresh runs the command of a job again, in a folder without the job.
func compareWithFresh(t *testing.T, dir, archive string) {
	t.Helper()
	fresh := unpackJob(t, archive)
	folders, _ := filepath.Glob(filepath.Join(fresh, "*.gpurun"))
	outputs, _ := filepath.Glob(filepath.Join(fresh, "out*"))
	for _, path := range append(folders, outputs...) {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	if exit, stderr := gpurun(t, fresh, argumentsOf(t, fresh)...); exit != 3 {
		t.Fatalf("exit %d: %s", exit, stderr)
	}
	if diff := cmp.Diff(results(t, fresh), results(t, dir)); diff != "" {
		t.Errorf("the output differs (- fresh, + of the older job): %s", diff)
	}
}

// finishedOlder: the same command reports that the job is finished, and report and retry work.
func finishedOlder(t *testing.T, name, archive string) {
	dir := unpackJob(t, archive)
	before := results(t, dir)
	arguments := argumentsOf(t, dir)
	output := arguments[5]
	if exit, stderr := gpurun(t, dir, "report", output, "--verify"); exit != 0 && exit != 3 {
		t.Errorf("report: exit %d: %s", exit, stderr)
	}
	if exit, stderr := gpurun(t, dir, arguments...); exit != 3 || !strings.Contains(stderr, "finished") {
		t.Errorf("run: exit %d: %s", exit, stderr)
	}
	if exit, stderr := gpurun(t, dir, "retry", output, "--gpus", "cpu:1"); exit != 3 {
		t.Errorf("retry: exit %d: %s", exit, stderr)
	}
	if diff := cmp.Diff(before, results(t, dir)); diff != "" {
		t.Errorf("%s: eight lines are still no JSON, but a retry changed: %s", name, diff)
	}
}
