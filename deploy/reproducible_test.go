package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReproduciblePackages: two builds of one commit have the same tarballs, Debian packages,
// wheels and checksums, byte for byte, from different folders, with different caches and user
// settings.
func TestReproduciblePackages(t *testing.T) {
	goreleaser := os.Getenv("GPURUN_GORELEASER")
	if goreleaser == "" {
		t.Skip("SKIPPED: builds all packages twice: make reproducible")
	}
	root := strings.TrimSpace(run(t, ".", "git", "rev-parse", "--show-toplevel"))
	commit := strings.TrimSpace(run(t, ".", "git", "rev-parse", "HEAD")) // it may move meanwhile
	modules := strings.TrimSpace(run(t, ".", "go", "env", "GOMODCACHE"))
	var builds [2]map[string][]byte
	for i := range builds {
		dir := filepath.Join(t.TempDir(), []string{"one", "another/and/deeper"}[i])
		script := `umask "$1" && git clone -q --no-checkout "$2" "$3" && cd "$3" && git checkout -q "$4" && "$5" release --snapshot --clean`
		cmd := exec.CommandContext(t.Context(), "bash", "-ec", script, "build", []string{"022", "077"}[i], root, dir, commit, goreleaser)
		cmd.Env = append(os.Environ(), "GOCACHE="+filepath.Join(dir, "..", "cache"))
		if i == 1 { // the same modules in another folder
			cmd.Env = append(cmd.Env, "GOMODCACHE="+filepath.Join(dir, "..", "modules"), "GOPROXY=file://"+modules+"/cache/download",
				"GOFLAGS=-buildvcs=true -modcacherw", "GOSUMDB=off", "TZ=Asia/Tokyo", "LC_ALL=C")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %d: %v\n%s", i, err, out)
		}
		builds[i] = make(map[string][]byte)
		for _, pattern := range []string{"*.tar.gz", "*.deb", "*.whl", "checksums.txt"} {
			paths, err := filepath.Glob(filepath.Join(dir, "dist/packages", pattern))
			if err != nil || len(paths) == 0 {
				t.Fatalf("no %s: %v", pattern, err)
			}
			for _, path := range paths {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				builds[i][filepath.Base(path)] = data
			}
		}
		run(t, ".", "chmod", "-R", "u+w", filepath.Dir(dir)) // a cache of modules is read-only
	}
	if len(builds[0]) != len(builds[1]) || len(builds[0]) != 7 {
		t.Errorf("%d and %d packages", len(builds[0]), len(builds[1]))
	}
	for name, data := range builds[0] {
		if !bytes.Equal(data, builds[1][name]) {
			t.Errorf("%s differs: %d and %d bytes", name, len(data), len(builds[1][name]))
		} else {
			t.Logf("%s: %d bytes, the same", name, len(data))
		}
	}
}
