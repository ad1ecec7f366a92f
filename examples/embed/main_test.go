package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestEmbed builds and runs the program as a user would.
func TestEmbed(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "embed")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	in, result := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
	input := "{\"text\":\"one two three\"}\n{\"no\":\"text\"}\n{\"text\":\"\"}\n"
	if err := os.WriteFile(in, []byte(input), 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, in, result).CombinedOutput()
	if err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "3 records, 1 failed") {
		t.Errorf("unexpected output: %s", out)
	}
	got, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"text":"one two three","words":3}
{"no":"text","_error":{"kind":"record","message":"the record has no text","step":"words","line":2}}
{"text":"","words":0}
`
	if string(got) != want {
		t.Errorf("got %s", got)
	}
	stream := exec.Command(program)
	stream.Stdin = strings.NewReader("one two three\n\nfour\n")
	out, err = stream.CombinedOutput()
	if want := "{\"text\":\"one two three\",\"words\":3}\n{\"text\":\"\",\"words\":0}\n{\"text\":\"four\",\"words\":1}\n"; err != nil || string(out) != want {
		t.Errorf("%v: %s", err, out)
	}
}
