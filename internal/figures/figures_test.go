package figures

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func TestMain(m *testing.M) {
	if path := os.Getenv("FIGURES_TEST"); path != "" {
		f, err := Open(path)
		if err != nil {
			panic(err)
		}
		for i := range 2000 {
			f.Add("tokens", 3)
			f.Add("name_"+strconv.Itoa(i%20), 1)
			f.Take(Requests, 5000)
		}
		p, _ := os.FindProcess(os.Getpid())
		_ = p.Kill()
		select {}
	}
	os.Exit(m.Run())
}

// Several processes count in one file; what a killed one has counted stays.
func TestProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures")
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "FIGURES_TEST="+path)
			if err := cmd.Run(); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("%v", err)
			}
		})
	}
	group.Wait()
	f := open(t, path)
	if f.Get("tokens") != 4*2000*3 || f.Get(Requests) != 5000 || f.Get("name_7") != 400 || len(f.All()) != 22 {
		t.Errorf("%v", f.All())
	}
}

func TestReopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures")
	first := open(t, path)
	if first.All() != nil {
		t.Error("a new file has figures")
	}
	first.Add(PromptTokens, 7)
	second := open(t, path)
	second.Add(PromptTokens, 1)
	second.Add(Requests, 2)
	if want := map[string]int64{PromptTokens: 8, Requests: 2}; !maps.Equal(first.All(), want) {
		t.Errorf("%v", first.All())
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
}

func TestTake(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "figures"))
	n := 0
	for f.Take(Requests, 3) {
		n++
	}
	if n != 3 || f.Get(Requests) != 3 || !f.Take(Requests, 4) || !f.Take(Requests, 0) {
		t.Errorf("%d, %v", n, f.All())
	}
}

func TestNames(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "figures"))
	for _, name := range []string{"", "A", "a b", "1a", "ä", strings.Repeat("a", 53), "a\n"} {
		if f.Add(name, 1) {
			t.Errorf("%q is a name", name)
		}
	}
	for i := range 100 {
		if added := f.Add(fmt.Sprint("a_", i), 1); added != (i < slots) {
			t.Errorf("%d: %v", i, added)
		}
	}
	if len(f.All()) != slots {
		t.Errorf("%v", f.All())
	}
}

func TestDamaged(t *testing.T) {
	for name, content := range map[string]string{
		"short": header, "other": strings.Repeat("x", size), "zeros": strings.Repeat("\x00", size), "long": header + strings.Repeat("\x00", size),
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Whatever is in the slots, nothing is read out of bounds.
	path := filepath.Join(t.TempDir(), "slots")
	page := []byte(header + strings.Repeat("\xff", size-len(header)))
	if err := os.WriteFile(path, page, 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, path)
	_ = f.All()
	if f.Add("a", 1) {
		t.Error("there was room")
	}
	if f.Take("a", 1) {
		t.Error("a limit does not hold")
	}
}

func TestRaiseAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures")
	if _, err := Read(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	f := open(t, path)
	f.Add(Requests, 5)
	f.Raise(Requests, 3)
	f.Raise(TotalTokens, 7)
	if all, err := Read(path); err != nil || !maps.Equal(all, map[string]int64{Requests: 5, TotalTokens: 7}) {
		t.Error(all, err)
	}
	if err := os.WriteFile(path, []byte("no figures"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}
