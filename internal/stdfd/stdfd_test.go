package stdfd_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/stdfd"
)

// TestMain acts as the program started with closed descriptors: it writes which are closed
// to the given file.
func TestMain(m *testing.M) {
	if path := os.Getenv("GPURUN_TEST_STDFD"); path != "" {
		text := fmt.Sprint(stdfd.Closed(stdfd.Stdin), stdfd.Closed(stdfd.Stdout), stdfd.Closed(stdfd.Stderr))
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestClosedIsNotNull: a closed descriptor counts as closed, but /dev/null does not, however
// it was opened.
func TestClosedIsNotNull(t *testing.T) {
	t.Parallel()
	for redirect, want := range map[string]string{
		"":                                      "false false false",
		"<&-":                                   "true false false",
		">&-":                                   "false true false",
		"2>&-":                                  "false false true",
		"<&- >&- 2>&-":                          "true true true",
		"</dev/null >/dev/null 2>/dev/null":     "false false false",
		"<>/dev/null 1<>/dev/null 2<>/dev/null": "false false false", // as the runtime does
	} {
		t.Run(redirect, func(t *testing.T) {
			t.Parallel()
			path := t.TempDir() + "/closed"
			cmd := exec.Command("sh", "-c", `exec "$0" `+redirect, os.Args[0])
			cmd.Env = append(os.Environ(), "GPURUN_TEST_STDFD="+path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got, err := os.ReadFile(path)
			if !stdfd.Known {
				want = "false false false"
			}
			if err != nil || strings.TrimSpace(string(got)) != want {
				t.Errorf("%v, closed: %s, want %s", err, got, want)
			}
		})
	}
}

func TestNamesOfDescriptors(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{
		"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2, "/dev/fd/1": 1, "/dev//fd/0": 0, "/proc/self/fd/2": 2,
		"/dev/fd/3": -1, "/dev/null": -1, "out.jsonl": -1, "-": -1, "/dev/fd/-1": -1,
	} {
		fd, ok := stdfd.Of(path)
		if !ok {
			fd = -1
		}
		if fd != want {
			t.Errorf("%s is descriptor %d, want %d", path, fd, want)
		}
	}
}
