package orchestrator_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator"
)

func hasPython() bool {
	_, err := exec.LookPath("python3")
	return err == nil
}

func needPython(t *testing.T) {
	t.Helper()
	if !hasPython() {
		t.Skip("SKIPPED: no python3: the sources of Python kernels are not tested")
	}
}

// pythonJob is a job of many small segments whose kernel consists of the given files;
// kernel.py is the one named. {DIR} in them stands for their folder.
func pythonJob(t *testing.T, files map[string]string) (jobDir, orchestrator.Config) {
	t.Helper()
	needPython(t)
	d := newJobDir(t, numbered(160))
	for name, source := range files {
		d.write(name, strings.ReplaceAll(source, "{DIR}", d.path))
	}
	c := d.config(d.join("kernel.py"))
	c.Batching.Size, c.Batching.ChunksPerGPU = 8, 4
	return d, c
}

func (d jobDir) write(name, text string) {
	d.t.Helper()
	if err := os.MkdirAll(filepath.Dir(d.join(name)), 0o777); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(d.join(name), []byte(text), 0o777); err != nil {
		d.t.Fatal(err)
	}
}

// versioned returns the output in which every record is of one version.
func versioned(version int) string {
	var b strings.Builder
	for i := range 160 {
		fmt.Fprintf(&b, "{\"id\":%d,\"v\":%d}\n", i, version)
	}
	return b.String()
}

const (
	helperKernel = "import time, helper\ndef process(batch):\n    time.sleep(0.01)\n    return {'v': [helper.version()] * len(batch)}\n"
	helperOne    = "def version(): return 1\n"
	helperTwo    = "def version(): return 2\n"
)

// A job whose helper module was edited between two runs is refused with the file's
// name, and resumed once the file is restored.
func TestEditedModuleRefusesResume(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]struct{ kernel, module string }{
		"module":  {helperKernel, "helper.py"},
		"chain":   {helperKernel, "helper.py"},
		"package": {strings.ReplaceAll(helperKernel, "helper", "tools.helper"), "tools/helper/__init__.py"},
		"lazy":    {"import time\ndef process(batch):\n    import helper\n    time.sleep(0.01)\n    return {'v': [helper.version()] * len(batch)}\n", "helper.py"},
		"indirect": {"import time, inner\ndef process(batch):\n    time.sleep(0.01)\n    return {'v': [inner.helper.version()] * len(batch)}\n",
			"helper.py"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, c := pythonJob(t, map[string]string{"kernel.py": files.kernel, files.module: helperOne, "inner.py": "import helper\n"})
			if name == "chain" { // of processes
				c.Kernel.Name += " → echo"
			}
			interrupt(t, c, "chunk_done", 2)
			d.write(files.module, helperTwo)
			_, err := run(t, c)
			wantFault(t, err, fault.Conflict, d.join(files.module), "[job-changed kernel]")
			if strings.Contains(err.Error(), "kernel.py") {
				t.Errorf("it names a file that has not changed: %v", err)
			}
			d.write(files.module, helperOne)
			resumes(t, d, c)
			if d.read("out.jsonl") != versioned(1) {
				t.Error("the output is not that of the first version alone")
			}
			// Finished with the current module; with another one it is another job.
			if again, err := run(t, c); err != nil || again.Resumed != again.In {
				t.Errorf("the finished job again: %+v, %v", again, err)
			}
			d.write(files.module, helperTwo)
			_, err = run(t, c)
			wantFault(t, err, fault.Usage, "exists")
		})
	}
}

func TestEditedModuleAccepted(t *testing.T) {
	t.Parallel()
	d, c := pythonJob(t, map[string]string{"kernel.py": helperKernel, "helper.py": helperOne})
	interrupt(t, c, "chunk_done", 2)
	d.write("helper.py", helperTwo)
	c.Resume.AcceptChanges = []string{"kernel"}
	resumes(t, d, c)
	if out := d.read("out.jsonl"); !strings.Contains(out, `"v":1}`) || !strings.Contains(out, `"v":2}`) {
		t.Error("the output is not of both versions")
	}
}

// editing is a kernel that edits one of its own files and dies, once, in the middle of
// the job: the next start must not load the edited file.
const editing = `
import os, sys
%s
def process(batch):
    if 90 in batch["id"]:
        try: os.mkdir("{DIR}/once")
        except FileExistsError: pass
        else:
            for name in os.listdir("{DIR}/new"):
                os.replace(os.path.join("{DIR}/new", name), os.path.join("{DIR}", name))
            os._exit(3)
    return {"v": [version()] * len(batch)}
`

// A kernel process that is restarted in the middle of a job runs the same files as the
// first: its template has them. One without a template loads them again; if they differ, the
// job stops and names the file.
func TestRestartLoadsTheSameSources(t *testing.T) {
	t.Parallel()
	inKernel := fmt.Sprintf(editing, helperOne)
	importing := fmt.Sprintf(editing, "from helper import version\nfork = False")
	for name, test := range map[string]struct {
		changed         string
		kernel, newFile string
		template        bool
	}{
		"kernel file":        {"kernel.py", inKernel, strings.ReplaceAll(inKernel, "return 1", "return 2"), false},
		"module":             {"helper.py", importing, helperTwo, false},
		"broken module":      {"helper.py", importing, "def version(: return 2\n", false},
		"module in template": {"helper.py", strings.ReplaceAll(importing, "fork = False", ""), helperTwo, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, c := pythonJob(t, map[string]string{"kernel.py": test.kernel, "helper.py": helperOne, "new/" + test.changed: test.newFile})
			c.Devices.GPUs = "cpu:1"
			old := d.read(test.changed)
			report, err := run(t, c)
			if test.template {
				if err != nil || d.read("out.jsonl") != versioned(1) {
					t.Errorf("%v, output:\n%s", err, d.read("out.jsonl"))
				}
				return
			}
			wantFault(t, err, fault.Stopped, d.join(test.changed), "[kernel-edited ]")
			if report.Succeeded == 0 || report.Failed > 0 {
				t.Errorf("%+v", report)
			}
			_, err = run(t, c)
			wantFault(t, err, fault.Conflict, d.join(test.changed))
			d.write(test.changed, old)
			resumes(t, d, c)
			if d.read("out.jsonl") != versioned(1) {
				t.Errorf("the output is not that of the first version alone:\n%s", d.read("out.jsonl"))
			}
		})
	}
}

// Two workers import a module lazily, one before and one after it was edited: the
// second one's results are not kept.
func TestWorkersLoadTheSameSources(t *testing.T) {
	t.Parallel()
	d, c := pythonJob(t, map[string]string{"helper.py": helperOne, "new.py": helperTwo, "kernel.py": `
import os, time
first = None
def process(batch):
    global first
    if first is None:
        try: os.mkdir("{DIR}/first"); first = True
        except FileExistsError: first = False; os.makedirs("{DIR}/second", exist_ok=True)
        while first and not os.path.exists("{DIR}/second"): time.sleep(0.01)
        # The first one's results, and with them the module, are reported before.
        while not first and "helper.py" not in open("{DIR}/out.jsonl.gpurun/job.json").read(): time.sleep(0.01)
    import helper
    if first and os.path.exists("{DIR}/new.py"): os.replace("{DIR}/new.py", "{DIR}/helper.py")
    return {"v": [helper.version()] * len(batch)}
`})
	_, err := run(t, c)
	wantFault(t, err, fault.Stopped, d.join("helper.py"))
	d.write("helper.py", helperOne)
	mustRun(t, d, c)
	if d.read("out.jsonl") != versioned(1) {
		t.Error("the output is not that of the first version alone")
	}
}

// The files of exec: commands may be read again at any time, and those of programs are
// read at every start.
func TestProgramsStayTheSame(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	edits := `if [ -e {DIR}/new ]; then mv {DIR}/new {DIR}/kernel.sh; fi`
	for name, test := range map[string]struct{ script, kernel, mode string }{
		"exec per record": {"#!/bin/sh\n" + edits + "\ncat\n", "exec:sh kernel.sh", "per-record"},
		"program":         {"#!/bin/sh\nexec " + self + " " + wire.KernelArgument + " test-poison\n", "./kernel.sh", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, numbered(40)+`{"poison":"exit"}`+"\n"+numbered(40))
			old := strings.ReplaceAll(test.script, "{DIR}", d.path)
			d.write("kernel.sh", old)
			c := d.config(test.kernel)
			c.Dir, c.Devices.GPUs, c.Batching.Size, c.Batching.ChunksPerGPU, c.Kernel.ExecMode = d.path, "cpu:1", 4, 8, test.mode
			done := false
			watch(&c, func(name string, _ int, _ orchestrator.Event) {
				if name == "chunk_done" && !done {
					done = true
					d.write("new.tmp", old+"# edited\n")
					to := "kernel.sh"
					if test.mode != "" {
						to = "new"
					}
					if err := os.Rename(d.join("new.tmp"), d.join(to)); err != nil {
						t.Error(err)
					}
				}
			})
			report, err := run(t, c)
			wantFault(t, err, fault.Stopped, d.join("kernel.sh"), "[kernel-edited ]")
			if report.Succeeded == 0 || report.Pending == 0 {
				t.Errorf("%+v", report)
			}
			d.write("kernel.sh", old)
			c.Display.OnEvent = nil
			mustRun(t, d, c)
		})
	}
}

// A retry computes with the current kernel: that is its purpose.
func TestRetryUsesTheModulesOfNow(t *testing.T) {
	t.Parallel()
	d, c := pythonJob(t, map[string]string{
		"kernel.py": "import helper\ndef process(batch): return [helper.compute(r) for r in batch]\n",
		"helper.py": "def compute(r): return ValueError('no') if r['id'] == 5 else {'id': r['id'], 'v': 1}\n",
	})
	if report := mustRun(t, d, c); report.Failed != 1 {
		t.Fatalf("%+v", report)
	}
	d.write("helper.py", "def compute(r): return {'id': r['id'], 'v': 1}\n")
	report, err := orchestrator.Retry(t.Context(), orchestrator.Config{Output: orchestrator.Output{Path: c.Output.Path}, Devices: orchestrator.Devices{GPUs: "cpu:1"}})
	if err != nil || report.Failed != 0 || d.read("out.jsonl") != versioned(1) {
		t.Errorf("%+v, %v", report, err)
	}
}

// A file that a command writes itself is no code: the job resumes, and is found finished
// afterwards, whether the file was there before or not. Another file that the command names
// must not change.
func TestFilesThatACommandWrites(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "of an earlier job\n"} {
		for name, kernel := range map[string]string{"exec": "exec:tee -a log.txt", "step": "exec:tee -a log.txt → echo"} {
			t.Run(fmt.Sprint(name, len(before)), func(t *testing.T) {
				t.Parallel()
				d := newJobDir(t, numbered(400))
				if before != "" {
					d.write("log.txt", before)
					if err := os.Chmod(d.join("log.txt"), 0o644); err != nil { // no program
						t.Fatal(err)
					}
				}
				c := d.config(kernel)
				c.Dir, c.Devices.GPUs, c.Batching.Size, c.Batching.ChunksPerGPU = d.path, "cpu:1", 4, 20
				for range 2 {
					if r := interrupt(t, c, "chunk_done", 2); r.Pending == 0 {
						t.Fatal("nothing is left to resume: this test shows nothing")
					}
				}
				resumes(t, d, c)
				if d.read("out.jsonl") != numbered(400) || !strings.HasPrefix(d.read("log.txt"), before) {
					t.Error("the output is wrong")
				}
				if r := mustRun(t, d, c); r.Resumed != 400 {
					t.Errorf("it is not found finished: %+v", r)
				}
			})
		}
	}
}

func TestDataOfACommandMustNotChange(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(400))
	d.write("edit.txt", "s/id/id/\n")
	if err := os.Chmod(d.join("edit.txt"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := d.config("exec:sed -u -f edit.txt")
	c.Dir, c.Devices.GPUs, c.Batching.Size, c.Batching.ChunksPerGPU = d.path, "cpu:1", 4, 20
	_ = interrupt(t, c, "chunk_done", 2)
	d.write("edit.txt", "s/id/di/\n")
	_, err := run(t, c)
	wantFault(t, err, fault.Conflict, d.join("edit.txt"))
}
