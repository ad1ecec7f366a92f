package orchestrator_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// disturbed runs a job during which something happens once, when part of it is done.
func disturbed(t *testing.T, c orchestrator.Config, happens func()) (orchestrator.Report, []string, error) {
	t.Helper()
	var once sync.Once
	var notices []string
	watch(&c, func(name string, passing int, e orchestrator.Event) {
		if name == "chunk_done" && passing >= 3 && (c.Output.Path == "-" || committed(c) || passing == 10) {
			once.Do(happens)
		}
		if notice, ok := e.(orchestrator.Notice); ok {
			notices = append(notices, notice.Text)
		}
	})
	report, err := run(t, c)
	return report, notices, err
}

// committed reports whether the journal of a job has a segment.
func committed(c orchestrator.Config) bool {
	journal, _ := os.ReadFile(c.Output.Path + ".gpurun/journal")
	return strings.Contains(string(journal), `"segment"`)
}

func slowJob(d jobDir) orchestrator.Config {
	c := d.config("test-slow")
	c.Batching.Size, c.Batching.ChunksPerGPU, c.Kernel.Config = 5, 8, []byte(`{"Milliseconds":5}`)
	return c
}

// TestInputChangedMeanwhile: an input that changes while it is read stops the job, and
// finished work comes from the old input only: once that is restored, the same command
// resumes.
func TestInputChangedMeanwhile(t *testing.T) {
	t.Parallel()
	in := numbered(400)
	other := strings.ReplaceAll(in, "id", "xx")
	for name, change := range map[string]func(path string) error{
		"replaced": func(path string) error {
			if err := os.WriteFile(path+".new", []byte(other), 0o666); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
		"replaced by one of the same time": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path+".new", []byte(other), 0o666); err != nil {
				return err
			}
			if err := os.Chtimes(path+".new", info.ModTime(), info.ModTime()); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
		"overwritten":        func(path string) error { return os.WriteFile(path, []byte(other), 0o666) },
		"overwritten longer": func(path string) error { return os.WriteFile(path, []byte(other+other), 0o666) },
		"cut":                func(path string) error { return os.Truncate(path, 100) },
		"edited in place": func(path string) error {
			return os.WriteFile(path, []byte(strings.Replace(in, `{"id":1}`, `{"ix":1}`, 1)), 0o666)
		},
		"edited in place, time restored": func(path string) error { return editBytes(path, `{"id":1}`, `{"ix":1}`) },
		"edited in place, and appended to": func(path string) error { // a record that is already committed
			return os.WriteFile(path, []byte(strings.Replace(in, `{"id":1}`, `{"ix":1}`, 1)+"{}\n"), 0o666)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, in)
			c := slowJob(d)
			_, _, err := disturbed(t, c, func() {
				if err := change(c.Input.Path); err != nil {
					t.Error(err)
				}
			})
			wantFault(t, err, fault.Conflict, c.Input.Path, "changed while the job was reading it", "[input-changed ]")
			if exists(c.Output.Path) {
				t.Fatal("there is an output")
			}
			if err := os.WriteFile(c.Input.Path, []byte(in), 0o666); err != nil {
				t.Fatal(err)
			}
			resumes(t, d, c)
			if d.read("out.jsonl") != in {
				t.Error("the output is of two inputs")
			}
		})
	}
}

// TestInputGoneMeanwhile: an input that cannot be reached does not count as changed.
func TestInputGoneMeanwhile(t *testing.T) {
	t.Parallel()
	in := numbered(400)
	d := newJobDir(t, in)
	c := slowJob(d)
	c.Kernel.Config = fmt.Appendf(nil, `{"Milliseconds":50,"Until":%q}`, d.join("gone")) // chunks remain, on a busy machine, too
	move := func(from, to string) {
		if err := os.Rename(d.join(from), d.join(to)); err != nil {
			t.Error(err)
		}
	}
	_, _, err := disturbed(t, c, func() {
		move("in.jsonl", "away")
		touch(d.join("gone"))
	})
	wantFault(t, err, fault.Storage, "in.jsonl", "no such file")
	move("away", "in.jsonl")
	resumes(t, d, c)
	if d.read("out.jsonl") != in {
		t.Error("output differs")
	}
}

// editBytes changes the content of a file and restores its time, as an editor of bytes or
// touch -r does.
func editBytes(path, old, text string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte(text), int64(strings.Index(string(data), old))); err != nil {
		return err
	}
	return os.Chtimes(path, info.ModTime(), info.ModTime())
}

// harmless are changes of a file that leave its content and its time alone, but not the time at
// which anything about it changed.
var harmless = map[string]func(path string) error{
	"linked": func(path string) error { return os.Link(path, path+".link") },
	"chmod":  func(path string) error { return os.Chmod(path, 0o640) },
}

// TestInputHarmlesslyChangedMeanwhile: a link to the input or another mode does not stop a job, and
// needs no notice.
func TestInputHarmlesslyChangedMeanwhile(t *testing.T) {
	t.Parallel()
	in := numbered(400)
	for name, change := range harmless {
		for _, split := range []input.Split{input.SplitRecords, input.SplitBytes} {
			t.Run(name+" by "+string(split), func(t *testing.T) {
				t.Parallel()
				d := newJobDir(t, in)
				c := slowJob(d)
				c.Input.Split = split
				_, notices, err := disturbed(t, c, func() {
					if err := change(c.Input.Path); err != nil {
						t.Error(err)
					}
				})
				if err != nil || strings.Contains(strings.Join(notices, "\n"), c.Input.Path) || d.read("out.jsonl") != in {
					t.Errorf("error %v, notices %q", err, notices)
				}
			})
		}
	}
}

// TestInputTouchedMeanwhile: with the same bytes it is the same input.
func TestInputTouchedMeanwhile(t *testing.T) {
	t.Parallel()
	in := numbered(400)
	d := newJobDir(t, in)
	report, notices, err := disturbed(t, slowJob(d), func() {
		now := time.Now().Add(time.Hour)
		_ = os.Chtimes(d.join("in.jsonl"), now, now)
	})
	if err != nil || report.In != 400 || d.read("out.jsonl") != in {
		t.Errorf("error %v, report %+v", err, report)
	}
	if all := strings.Join(notices, "\n"); strings.Count(all, "was touched") != 1 {
		t.Errorf("notices: %q", all)
	}
}

// TestInputGrowsMeanwhile: data appended to an input is not read, so the output is
// right; a notice reports it.
func TestInputGrowsMeanwhile(t *testing.T) {
	t.Parallel()
	in := numbered(400)
	d := newJobDir(t, in)
	report, notices, err := disturbed(t, slowJob(d), func() { appendTo(d, "in.jsonl", numbered(10)) })
	if err != nil || report.In != 400 || d.read("out.jsonl") != in {
		t.Errorf("error %v, report %+v", err, report)
	}
	if all := strings.Join(notices, "\n"); strings.Count(all, "was appended to") != 1 {
		t.Errorf("notices: %q", all)
	}
}
