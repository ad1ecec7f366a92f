package lease

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
)

// cards is a machine of n GPUs of 80 GiB, 1 GiB of each in use.
func cards(n int) []GPU {
	list := make([]GPU, n)
	for i := range list {
		list[i] = GPU{Key: uuid(i), Index: i, Label: "GPU " + string(rune('0'+i)), Total: 80 << 30, Used: 1 << 30}
	}
	return list
}

// uuid is the UUID of the i-th card.
func uuid(i int) string { return fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i) }

func fixed(gpus []GPU) func(context.Context) ([]GPU, error) {
	return func(context.Context) ([]GPU, error) { return gpus, nil }
}

// ask is a request for one of n GPUs, exclusively; edit changes it.
func ask(n int, edit func(*Request)) Request {
	r := Request{Name: "test", GPUs: fixed(cards(n)), Number: 1, Prefer: -1, Owned: true}
	if edit != nil {
		edit(&r)
	}
	return r
}

func open(t *testing.T) *Folder {
	t.Helper()
	f, err := Open(filepath.Join(t.TempDir(), "leases"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func acquire(t *testing.T, f *Folder, r Request) *Held {
	t.Helper()
	held, err := f.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.Release)
	return held
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
