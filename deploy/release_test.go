package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// release is the part of .goreleaser.yaml that must agree with other files.
type release struct {
	Builds []struct {
		Main    string
		Goarch  []string
		Env     []string
		Flags   []string
		Ldflags []string
	}
	Archives []struct {
		Files []struct{ Src string }
	}
	Nfpms []struct {
		Scripts  map[string]string
		Contents []struct{ Src, Dst string }
	}
}

// TestReleaseBuildsTheSame: the packages contain what make build builds.
func TestReleaseBuildsTheSame(t *testing.T) {
	var config release
	if err := yaml.Unmarshal([]byte(read(t, ".goreleaser.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Builds) != 1 || len(config.Nfpms) != 1 || len(config.Archives) != 1 {
		t.Fatalf("%+v", config)
	}
	build, script, source := config.Builds[0], read(t, "scripts/build.sh"), read(t, "cmd/gpurun/version.go")
	for _, flag := range build.Flags {
		if !strings.Contains(script, flag) {
			t.Errorf("scripts/build.sh does not build with %s", flag)
		}
	}
	for _, name := range []string{"CGO_CFLAGS", "CGO_LDFLAGS"} {
		match := regexp.MustCompile(name + `="([^"]*)"`).FindStringSubmatch(script)
		if match == nil || !slices.Contains(build.Env, name+"="+match[1]) {
			t.Errorf("%s of scripts/build.sh is %q, of .goreleaser.yaml %q", name, match, build.Env)
		}
	}
	set := regexp.MustCompile(`-X main\.(\w+)=`)
	inScript := set.FindAllStringSubmatch(script, -1)
	for _, match := range inScript {
		name := match[1]
		if !strings.Contains(strings.Join(build.Ldflags, " "), "-X main."+name+"=") {
			t.Errorf(".goreleaser.yaml does not set main.%s", name)
		}
		if !regexp.MustCompile(`(?m)^\t` + name + `\s+= ""`).MatchString(source) {
			t.Errorf("cmd/gpurun/version.go has no variable %s", name)
		}
	}
	if got := len(set.FindAllString(strings.Join(build.Ldflags, " "), -1)); got != len(inScript) || got == 0 {
		t.Errorf(".goreleaser.yaml sets %d variables, scripts/build.sh %d", got, len(inScript))
	}
}

// TestReleaseFilesExist: every file of a package is in the repository, or generated.
func TestReleaseFilesExist(t *testing.T) {
	var config release
	if err := yaml.Unmarshal([]byte(read(t, ".goreleaser.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	var sources []string
	for _, file := range config.Archives[0].Files {
		sources = append(sources, file.Src)
	}
	for _, file := range config.Nfpms[0].Contents {
		sources = append(sources, file.Src)
	}
	for _, script := range config.Nfpms[0].Scripts {
		sources = append(sources, script)
	}
	for _, source := range sources {
		if strings.HasPrefix(source, "dist/share/") { // scripts/share.sh writes it
			continue
		}
		if _, err := os.Stat(filepath.Join("..", source)); err != nil {
			t.Error(err)
		}
	}
}

// TestLeaseFolderBelongsToRoot: the service does not take the folder in which all users lease
// GPUs for itself; the packages create that for them.
func TestLeaseFolderBelongsToRoot(t *testing.T) {
	for line := range strings.Lines(read(t, "deploy/gpurun-serve.service")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "RuntimeDirectory="); ok && name == "gpurun" {
			t.Error("systemd would give /run/gpurun to the user of the service")
		}
	}
	if !strings.Contains(read(t, "deploy/gpurun.tmpfiles"), "\nd /run/gpurun 1777 root root -\n") {
		t.Error("nothing creates /run/gpurun for all users")
	}
}

// TestMakeTargets: workflows, CI and CONTRIBUTING.md name make targets that exist.
func TestMakeTargets(t *testing.T) {
	targets := make(map[string]bool)
	for _, match := range regexp.MustCompile(`(?m)^([a-z][a-z-]*):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[match[1]] = true
	}
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	files = append(files, "../.ci/run", "../CONTRIBUTING.md", "../README.md")
	commands := regexp.MustCompile("(?m)(?:^ *|run: |`|: )make ((?:[a-z][a-z-]*[ \t`,}\n])+)")
	found := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range commands.FindAllStringSubmatch(string(text)+"\n", -1) {
			line, _, _ := strings.Cut(match[1], "\n")
			line, _, _ = strings.Cut(line, "  ") // a comment follows
			for _, target := range strings.FieldsFunc(line, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r == '-') }) {
				found++
				if !targets[target] {
					t.Errorf("%s: there is no target %s", filepath.Base(path), target)
				}
			}
		}
	}
	if found < 15 {
		t.Errorf("found only %d targets", found)
	}
}

// planned returns what make would do.
func planned(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("make", append([]string{"-C", "..", "-n"}, args...)...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ARCH=") }), "MAKEFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make %s: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestWheelIsForThisMachine: other architectures, and the compilers that they need, are asked for
// by name. What only tests need is not installed for a build.
func TestWheelIsForThisMachine(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("SKIPPED: no make")
	}
	other, compiler := "arm64", "gcc-aarch64-linux-gnu"
	if runtime.GOARCH == "arm64" {
		other, compiler = "amd64", "gcc-x86-64-linux-gnu"
	}
	own := planned(t, "wheel")
	for _, word := range []string{compiler, other, "protobuf-compiler"} {
		if strings.Contains(own, word) {
			t.Errorf("make wheel has to do with %s:\n%s", word, own)
		}
	}
	if both := planned(t, "wheel", "ARCH="+runtime.GOARCH+" "+other); !strings.Contains(both, compiler) || !strings.Contains(both, "ARCH='"+runtime.GOARCH+" "+other+"'") {
		t.Errorf("make wheel for both:\n%s", both)
	}
	if demo := planned(t, "demo"); strings.Contains(demo, "protobuf-compiler") {
		t.Errorf("make demo installs what it does not need:\n%s", demo)
	}
}

// TestToolsAreAnnounced: it is said what is installed, and how, before it is.
func TestToolsAreAnnounced(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"apt-get": "#!/bin/sh\necho \"apt-get $*\" >&3\n", "sudo": "#!/bin/sh\nshift\nexec \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("bash", "-c", "exec 3>&1; ./tools.sh no-such-package:no-such-command 2>&1")
	cmd.Dir = "../scripts"
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said, _, called := strings.Cut(string(out), "apt-get update\n")
	if !called || !strings.Contains(said, "installing with apt-get: no-such-package") {
		t.Errorf("it says\n%s", out)
	}
}
