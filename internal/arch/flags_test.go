package arch

import (
	"regexp"
	"strings"
	"testing"
)

// flagWord is a word that looks like a flag of gpurun: --force, -k.
var flagWord = regexp.MustCompile(`(^|[^-\w])(--[a-z][a-z-]*|-[ko])\b`)

// otherPrograms are uses of flags that are not gpurun's, or not in a message of a library.
var otherPrograms = []string{
	"docker run --gpus all",
	"go build -o kernel",
	"gpurun run -k ./%s in.jsonl -o out.jsonl", // what a kernel prints that a person starts by hand
}

// mayNameFlags are the packages with the command line, and those that call programs.
var mayNameFlags = []string{"cmd/gpurun", "internal/cluster/slurm"}

// TestLibrariesNameNoFlags: a program that embeds gpurun has other flags, or none. Faults
// carry a code, and cmd/gpurun/hints.go alone turns codes into flags.
func TestLibrariesNameNoFlags(t *testing.T) {
	eachLiteral(t, func(t *testing.T, name, where, text string) {
		for _, allowed := range mayNameFlags {
			if name == allowed {
				return
			}
		}
		if found := findFlag(text); found != "" {
			t.Errorf("%s names the flag %s: give the fault a code, and add the flag to hints in cmd/gpurun/hints.go", where, found)
		}
	})
}

// findFlag returns the first flag in text, "" if there is none.
func findFlag(text string) string {
	for _, other := range otherPrograms {
		text = strings.ReplaceAll(text, other, "")
	}
	if match := flagWord.FindStringSubmatch(text); match != nil {
		return match[2]
	}
	return ""
}

// TestFlagsAreFound checks the check itself.
func TestFlagsAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"; --fresh starts over":              "--fresh",
		"name one (-k echo)":                 "-k",
		"`--gpus cpu:N` runs on the CPU":     "--gpus",
		"a container: docker run --gpus all": "",
		"two-word names -- and dashes":       "",
		"nvidia-smi -q":                      "",
		"max-record-bytes":                   "",
	} {
		if got := findFlag(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
