package orchestrator_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// snapshot saves a folder so that it can be restored.
func snapshot(t *testing.T, dir string) (putBack func()) {
	t.Helper()
	aside := filepath.Join(t.TempDir(), "snapshot")
	if err := os.CopyFS(aside, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = os.RemoveAll(dir)
		if err := os.CopyFS(dir, os.DirFS(aside)); err != nil {
			t.Fatal(err)
		}
	}
}

// edit changes a file.
func edit(t *testing.T, path string, change func(data []byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(data), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestDamage: whatever is damaged in the job folder of a killed job, the job is resumed
// correctly, started over correctly, or refused. Its output is never wrong.
func TestDamage(t *testing.T) {
	t.Parallel()
	v := &variant{name: "damage", records: 480, change: func(d jobDir, c *orchestrator.Config) { c.Output.Errors = d.join("errors.jsonl") }}
	want := v.undisturbed(t)
	d, c, parts := killedWithParts(t, v)
	c.Devices.GPUs = "cpu:1" // enough to resume
	folder := jobFolder(c)
	putBack := snapshot(t, folder)
	random := rand.New(rand.NewPCG(1, 2))
	flip := func(path string) {
		edit(t, path, func(data []byte) []byte {
			data[random.IntN(len(data))] ^= 1 << random.IntN(8)
			return data
		})
	}
	makeFolder := func(path string) {
		_ = os.RemoveAll(path)
		if err := os.MkdirAll(path+"/sub", 0o777); err != nil {
			t.Fatal(err)
		}
	}
	makeFile := func(path string) {
		_ = os.RemoveAll(path)
		touch(path)
	}
	journal, manifest := folder+"/journal", folder+"/job.json"
	damages := map[string]func(){
		"none":         func() {},
		"part removed": func() { _ = os.Remove(parts[0]) },
		"part cut":     func() { edit(t, parts[0], func(b []byte) []byte { return b[:len(b)/2] }) },
		"part empty":   func() { edit(t, parts[1], func(b []byte) []byte { return nil }) },
		"part longer":  func() { edit(t, parts[1], func(b []byte) []byte { return append(b, b...) }) },
		"parts swapped": func() {
			_ = os.Rename(parts[0], parts[0]+"x")
			_ = os.Rename(parts[1], parts[0])
			_ = os.Rename(parts[0]+"x", parts[1])
		},
		"all parts removed":       func() { _ = os.RemoveAll(folder + "/parts") },
		"unknown part":            func() { touch(folder + "/parts/000000000003-abcdef01.out") },
		"output removed":          func() { _ = os.Remove(folder + "/output.partial") },
		"output cut":              func() { _ = os.Truncate(folder+"/output.partial", 3) },
		"output longer":           func() { edit(t, folder+"/output.partial", func(b []byte) []byte { return append(b, "{}\n{"...) }) },
		"failures removed":        func() { _ = os.Remove(folder + "/failures.partial") },
		"journal removed":         func() { _ = os.Remove(journal) },
		"journal empty":           func() { _ = os.Truncate(journal, 0) },
		"journal without a line":  func() { edit(t, journal, func(b []byte) []byte { return withoutLine(b, 3) }) },
		"journal with line twice": func() { edit(t, journal, func(b []byte) []byte { return append(b, lastLine(b)...) }) },
		"journal's end cut":       func() { edit(t, journal, func(b []byte) []byte { return b[:len(b)-7] }) },
		"journal half":            func() { edit(t, journal, func(b []byte) []byte { return b[:len(b)/2] }) },
		"journal zeroed":          func() { edit(t, journal, func(b []byte) []byte { clear(b[len(b)-40:]); return b }) },
		"job.json removed":        func() { _ = os.Remove(manifest) },
		"job.json cut":            func() { edit(t, manifest, func(b []byte) []byte { return b[:len(b)/2] }) },
		"job.json a folder":       func() { makeFolder(manifest) },
		"journal a folder":        func() { makeFolder(journal) },
		"parts a file":            func() { makeFile(folder + "/parts") },
		"logs a file":             func() { makeFile(folder + "/logs") },
		"output a folder":         func() { makeFolder(folder + "/output.partial") },
		"errors a folder":         func() { makeFolder(folder + "/errors.partial") },
		"failures a folder":       func() { makeFolder(folder + "/failures.partial") },
		"report a folder":         func() { makeFolder(folder + "/report.json") },
		"job.json: another cut": func() {
			edit(t, manifest, func(b []byte) []byte {
				return []byte(strings.Replace(string(b), `"first": 3`, `"first": 4`, 1))
			})
		},
	}
	for i := range 3 {
		damages[fmt.Sprintf("part flipped %d", i)] = func() { flip(parts[i%len(parts)]) }
		damages[fmt.Sprintf("journal flipped %d", i)] = func() { flip(journal) }
		damages[fmt.Sprintf("job.json flipped %d", i)] = func() { flip(manifest) }
	}
	refused := 0
	for name, damage := range damages {
		putBack()
		_ = os.Remove(c.Output.Path)
		_ = os.Remove(c.Output.Errors)
		damage()
		_, err := run(t, c)
		if err != nil {
			refused++
			if fault.KindOf(err) != fault.Conflict || fault.As(err).Code != fault.JobDamaged || exists(c.Output.Path) {
				t.Errorf("%s: %v; output: %t", name, err, exists(c.Output.Path))
			}
			if name == "none" {
				t.Errorf("%s: %v", name, err)
			}
			if wrong := strings.HasSuffix(name, "a folder") || strings.HasSuffix(name, "a file"); wrong {
				fresh := c
				fresh.Resume.Fresh = true
				if _, err := run(t, fresh); err != nil {
					t.Errorf("%s, started over: %v", name, err)
				}
			}
			continue
		}
		if diff := differences(want, results(d, c)); diff != "" {
			t.Errorf("%s: wrong output: %s", name, diff)
		}
	}
	t.Logf("%d damages, %d refused, %d resumed", len(damages), refused, len(damages)-refused)
}

// TestLockIsNotAFile: this cannot be started over, and the message says what to do.
func TestLockIsNotAFile(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(10))
	c := d.config("echo")
	if err := os.MkdirAll(jobFolder(c)+"/lock", 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := run(t, c)
	wantFault(t, err, fault.Conflict, "/lock", "remove it")
}

// TestDamagedEndIsWrittenAgain: a job killed when only the renames were missing is resumed
// correctly if the end of its output, or the header of an array, was damaged since. Nothing is
// computed again.
func TestDamagedEndIsWrittenAgain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		v    *variant
		file string
		at   func(size int) int
	}{
		{derive("a table"), "output.partial", func(size int) int { return size - 1 }},
		{derive("tables"), "output.partial/part-*", func(size int) int { return size - 1 }},
		{derive("arrays"), "array-0.partial", func(int) int { return 60 }},
	} {
		t.Run(test.v.store.name, func(t *testing.T) {
			t.Parallel()
			want := test.v.undisturbed(t)
			d, c := test.v.start(t)
			mark := fmt.Sprintf("damaged-end-%d-%s", os.Getpid(), strings.ReplaceAll(test.v.store.name, " ", "-"))
			if end := startDriver(t, driverOf(t, c), mark, crash.Variable+"=complete").wait(t); !end.killed {
				t.Fatalf("ended: %s", end)
			}
			awaitGone(t, mark)
			paths, _ := filepath.Glob(filepath.Join(jobFolder(c), test.file))
			edit(t, paths[len(paths)-1], func(data []byte) []byte {
				data[test.at(len(data))] ^= 1
				return data
			})
			report := mustRun(t, d, adapted(c))
			if diff := differences(want, results(d, c)); diff != "" {
				t.Error(diff)
			}
			if report.In != report.Resumed {
				t.Errorf("%d of %d records were computed again", report.In-report.Resumed, report.In)
			}
			if err := orchestrator.Verify(t.Context(), c.Output.Path, report); err != nil {
				t.Error(err)
			}
		})
	}
}

// killedWithParts returns a job killed after a durable point with at least two parts.
// It tries until that happens: how much is durable depends on timing.
func killedWithParts(t *testing.T, v *variant) (d jobDir, c orchestrator.Config, parts []string) {
	t.Helper()
	for attempt := range 20 {
		d, c = v.start(t)
		c.Resume.Checkpoint = 20 * time.Millisecond
		job := driverOf(t, c)
		job.DurableEvery = 80 * time.Millisecond
		mark := fmt.Sprintf("damage-%d-%d", os.Getpid(), attempt)
		if end := startDriver(t, job, mark, fmt.Sprintf("%s=part-written:%d", crash.Variable, 10+attempt%8)).wait(t); !end.killed {
			t.Fatalf("ended: %s", end)
		}
		awaitGone(t, mark)
		parts, _ = filepath.Glob(jobFolder(c) + "/parts/*.out")
		parts = slices.DeleteFunc(parts, func(path string) bool { // in progress when the job was killed
			info, err := os.Stat(path)
			return err != nil || info.Size() == 0
		})
		if journal, _ := os.ReadFile(jobFolder(c) + "/journal"); len(parts) >= 2 && strings.Contains(string(journal), "durable") {
			return d, c, parts
		}
	}
	t.Fatal("no job had two parts: this test shows nothing")
	return d, c, nil
}

func withoutLine(b []byte, n int) []byte {
	lines := strings.SplitAfter(string(b), "\n")
	return []byte(strings.Join(slices.Delete(lines, n, n+1), ""))
}

func lastLine(b []byte) []byte {
	lines := strings.SplitAfter(strings.TrimSuffix(string(b), "\n"), "\n")
	return []byte(lines[len(lines)-1] + "\n")
}

// journalled returns the number of segments in a journal.
func journalled(t *testing.T, c orchestrator.Config) (n int) {
	t.Helper()
	data, _ := os.ReadFile(jobFolder(c) + "/journal")
	for line := range strings.Lines(string(data)) {
		_, entry, _ := strings.Cut(line, " ")
		var value struct{ Segment json.RawMessage }
		if json.Unmarshal([]byte(entry), &value) == nil && value.Segment != nil {
			n++
		}
	}
	return n
}
