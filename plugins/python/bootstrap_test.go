package python_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// addModule adds a module that creates a file to the compiled modules in a file.
const addModule = `
import marshal, struct, sys, zlib
with open(sys.argv[1], "rb") as file:
    code = marshal.loads(file.read()[4:])
code.insert(0, ("mark", compile("open(%r, 'w').close()" % sys.argv[2], "mark", "exec")))
data = marshal.dumps(code)
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<I", zlib.crc32(data)) + data)
`

// The runner is compiled once: later interpreters load what an earlier one has saved, unless that is
// damaged or others could have written it.
func TestRunnerIsCompiledOnce(t *testing.T) {
	cache, mark := t.TempDir(), filepath.Join(t.TempDir(), "mark")
	t.Setenv("XDG_CACHE_HOME", cache)
	computes := func() (loaded bool) {
		t.Helper()
		expect(t, start(t, "def process(batch): return list(batch)"), []string{`{"a":1}`}, []string{"unchanged"})
		err := os.Remove(mark)
		return err == nil
	}
	saved := func() string {
		t.Helper()
		found, _ := filepath.Glob(cache + "/gpurun/runner-*")
		if len(found) != 1 {
			t.Fatalf("%d files in the cache", len(found))
		}
		return found[0]
	}
	computes()
	whole, err := os.ReadFile(saved())
	if err != nil {
		t.Fatal(err)
	}
	marked := func() {
		t.Helper()
		if out, err := exec.Command("python3", "-c", addModule, saved(), mark).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if marked(); !computes() {
		t.Error("the saved modules were not loaded")
	}
	for name, damage := range map[string]func(path string) error{
		"cut":                func(path string) error { return os.Truncate(path, 1000) },
		"empty":              func(path string) error { return os.Truncate(path, 0) },
		"writable by others": func(path string) error { return os.Chmod(path, 0o666) },
		"a changed byte": func(path string) error {
			return os.WriteFile(path, append([]byte{whole[0] ^ 1}, whole[1:]...), 0o600)
		},
		"gone": func(path string) error { return os.Rename(path, path+".gone") },
	} {
		marked()
		path := saved()
		if err := damage(path); err != nil {
			t.Fatal(err)
		}
		if computes() {
			t.Errorf("%s: it was loaded", name)
		}
		_ = os.Remove(path + ".gone")
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Chmod(path, 0o600)
	}
	t.Setenv("XDG_CACHE_HOME", "relative")
	if computes(); exists("relative") {
		t.Error("it was saved in the current folder")
	}
	t.Setenv("XDG_CACHE_HOME", cache)
	_ = os.RemoveAll(cache + "/gpurun")
	if err := os.WriteFile(cache+"/gpurun", nil, 0o600); err != nil { // nothing can be saved there
		t.Fatal(err)
	}
	computes()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
