package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestReproducible: two builds of one commit are the same byte for byte, from different
// folders, with different caches of Go, user settings and umasks.
func TestReproducible(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getenv("GPURUN_DIST") == "" {
		t.Skip("SKIPPED: builds the program twice with empty caches: make reproducible")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(command(t, root, os.Environ(), "git", "rev-parse", "HEAD")) // it may move meanwhile
	var builds [2]map[string][]byte
	for i := range builds {
		dir := filepath.Join(t.TempDir(), []string{"one", "another/and/deeper"}[i])
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		command(t, root, os.Environ(), "sh", "-ec", "umask "+[]string{"022", "077"}[i]+"; git archive "+commit+" | tar -x -C '"+dir+"'")
		modules := strings.TrimSpace(command(t, root, os.Environ(), "go", "env", "GOMODCACHE"))
		env := append(os.Environ(), "OUT="+filepath.Join(dir, "dist"), "ARCH="+runtime.GOARCH, "GOCACHE="+filepath.Join(dir, "cache"),
			"GOFLAGS="+[]string{"", "-buildvcs=true -modcacherw"}[i],
			"VERSION=v9.8.7", "COMMIT=0123456789012345678901234567890123456789", "COMMIT_TIME=2026-01-02T03:04:05Z")
		if i == 1 { // the same modules and C libraries in other folders
			packages := filepath.Join(dir, "tools/sysroot/packages")
			if err := os.CopyFS(packages, os.DirFS(filepath.Join(toolFolder(t), "sysroot/packages"))); err != nil {
				t.Logf("SKIPPED: no C libraries of old systems: %v", err)
			}
			env = append(env, "GPURUN_TOOLS="+filepath.Join(dir, "tools"), "GOMODCACHE="+filepath.Join(dir, "modules"), "GOPROXY=file://"+modules+"/cache/download", "GOSUMDB=off", "TZ=Asia/Tokyo", "LC_ALL=C")
		}
		t.Log(command(t, dir, env, "bash", "scripts/wheel.sh"))
		builds[i] = make(map[string][]byte)
		for _, pattern := range []string{"dist/*.whl", "dist/linux-*/gpurun", "dist/THIRD_PARTY_LICENSES"} {
			paths, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil || len(paths) != 1 {
				t.Fatalf("%s: %q, %v", pattern, paths, err)
			}
			data, err := os.ReadFile(paths[0])
			if err != nil {
				t.Fatal(err)
			}
			builds[i][filepath.Base(paths[0])] = data
		}
		command(t, dir, nil, "chmod", "-R", "u+w", dir) // a cache of modules is read-only
	}
	for name, data := range builds[0] {
		other, there := builds[1][name]
		if !there {
			t.Fatalf("the second build has no %s", name)
		}
		if !bytes.Equal(data, other) {
			at := 0
			for at < min(len(data), len(other)) && data[at] == other[at] {
				at++
			}
			t.Errorf("%s: %d and %d bytes, different from byte %d on: %q", name, len(data), len(other), at, data[max(0, at-40):min(len(data), at+40)])
		}
		if bytes.Contains(data, []byte(os.TempDir()+"/TestReproducible")) {
			t.Errorf("%s contains the name of the folder", name)
		}
	}
}
