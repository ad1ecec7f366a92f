package filesum

import (
	"os"
	"path/filepath"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestSums(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "abc")
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if sum, err := Program(path); sum != abc || err != nil {
		t.Errorf("%s, %v", sum, err)
	}
	if err := os.Truncate(path, mostBytes+1); err != nil {
		t.Fatal(err)
	}
	program, err := Program(path)
	if err != nil || len(program) == len(abc) {
		t.Errorf("an outsized program was read: %s, %v", program, err)
	}
	if whole, err := Whole(path); len(whole) != len(abc) || err != nil {
		t.Errorf("%s, %v", whole, err)
	}
	if _, err := Program(path + "-none"); err == nil {
		t.Error("a file that is not there has a sum")
	}
}

// editAndRestore changes a file and restores its modification time.
func editAndRestore(t *testing.T, path, text string) {
	t.Helper()
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for now := was; ChangeTime(now).Equal(ChangeTime(was)); { // the clock of a file system may be coarse
		write(t, path, text)
		if err := os.Chtimes(path, was.ModTime(), was.ModTime()); err != nil {
			t.Fatal(err)
		}
		if now, err = os.Stat(path); err != nil || ChangeTime(now).IsZero() {
			t.Skip("no change time:", err)
		}
	}
}

// A replaced, a longer, an edited and a missing file are all detected.
func TestCacheNoticesChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	var c Cache
	seen := map[string]bool{}
	for _, change := range []func(){
		func() { write(t, path, "abc") },
		func() { write(t, path+"2", "abd"); _ = os.Rename(path+"2", path) },
		func() { editAndRestore(t, path, "abe") },
		func() { write(t, path, "abcdef") },
		func() { _ = os.Remove(path) },
	} {
		change()
		sum := c.Program(path)
		if seen[sum] || sum != c.Program(path) {
			t.Errorf("sum %q is not of this state alone", sum)
		}
		seen[sum] = true
	}
	if !seen[""] {
		t.Error("a file that is gone has a sum")
	}
}
