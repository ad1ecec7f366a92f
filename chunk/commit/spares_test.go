package commit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
)

// TestPartOverSpare: a part that overwrites a spare is the same as one in a new file,
// whichever of the two files is longer.
func TestPartOverSpare(t *testing.T) {
	long := strings.Repeat(`{"a":1}`+"\n", 50_000)
	for name, old := range map[string]string{"longer": long + long, "as long": long, "shorter": "x\n", "empty": ""} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			spare := chunktest.Write(t, filepath.Join(dir, "old.out"), []byte(old))
			part := NewPart(PartOptions{Path: filepath.Join(dir, "p"), Spare: spare})
			chunktest.Must(t, part.Succeed([]byte("1\n")))
			chunktest.Must(t, part.SucceedUnchanged([]byte(long[2:]), 50_000))
			segment, err := part.Close(chunk.Chunk{})
			chunktest.Must(t, err)
			chunktest.Must(t, CheckPart(dir, segment))
			if diff := cmp.Diff(map[string]string{"p.out": "1\n" + long[2:]}, contents(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPartWithoutSpare: a missing spare does not matter.
func TestPartWithoutSpare(t *testing.T) {
	dir := t.TempDir()
	part := NewPart(PartOptions{Path: filepath.Join(dir, "p"), Spare: filepath.Join(dir, "gone.out")})
	chunktest.Must(t, part.Succeed([]byte("1\n")))
	segment, err := part.Close(chunk.Chunk{})
	chunktest.Must(t, err)
	chunktest.Must(t, CheckPart(dir, segment))
}

// TestPartSpareGoes: a part removes its spare whether it uses it or not.
func TestPartSpareGoes(t *testing.T) {
	for name, c := range map[string]struct {
		write func(*Part) error
		end   func(*Part)
		want  []string
	}{
		"nothing written": {(*Part).Drop, func(p *Part) { _, _ = p.Close(chunk.Chunk{}) }, []string{}},
		"only failures": {func(p *Part) error { return p.Fail(input.Record{Data: []byte("1")}, fault.New(fault.Record, "bad")) },
			func(p *Part) { _, _ = p.Close(chunk.Chunk{}) }, []string{"p.err", "p.failures"}},
		"discarded":      {func(p *Part) error { return p.Succeed([]byte("1\n")) }, (*Part).Discard, []string{}},
		"unused, thrown": {(*Part).Drop, (*Part).Discard, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			spare := chunktest.Write(t, filepath.Join(dir, "old.out"), []byte("old\n"))
			part := NewPart(PartOptions{Path: filepath.Join(dir, "p"), Spare: spare, ErrorsApart: true})
			chunktest.Must(t, c.write(part))
			c.end(part)
			if diff := cmp.Diff(c.want, chunktest.Files(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSparesBounded: spares are limited, and none remain at the end.
func TestSparesBounded(t *testing.T) {
	dir := t.TempDir()
	var s spares
	keep := func(name string, bytes int64) {
		s.keep(chunktest.Write(t, filepath.Join(dir, name), []byte("x")), bytes)
	}
	keep("large", maxSpareBytes+1)
	keep("a", maxSpareBytes-1)
	keep("b", 2)
	if diff := cmp.Diff([]string{"a"}, chunktest.Files(t, dir)); diff != "" {
		t.Error(diff)
	}
	if got := s.take(); got != filepath.Join(dir, "a") {
		t.Errorf("took %q", got)
	}
	if got := s.take(); got != "" {
		t.Errorf("took %q, which is in use", got)
	}
	chunktest.Must(t, os.Remove(filepath.Join(dir, "a")))
	for i := range maxSpares + 5 {
		keep(fmt.Sprint(i), 1)
	}
	if got := len(chunktest.Files(t, dir)); got != maxSpares {
		t.Errorf("%d files are kept", got)
	}
	s.close()
	keep("late", 1)
	if got := chunktest.Files(t, dir); len(got) > 0 {
		t.Errorf("kept after the end: %v", got)
	}
}

// TestSparesGo: a closed output keeps no spares, so that it frees its disk space.
func TestSparesGo(t *testing.T) {
	for name, end := range map[string]func(*Output){
		"abandoned": (*Output).Abandon,
		"finished":  func(o *Output) { _ = o.Finish() },
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t)
			o, err := Create(Options{Path: j.out, WorkDir: j.work(), Journal: j.journal(t)})
			chunktest.Must(t, err)
			for i := range int64(3) {
				chunktest.Must(t, o.Commit(j.segment(t, i*10, 10, false)))
			}
			chunktest.Must(t, o.Checkpoint(true))
			if got := chunktest.Files(t, j.parts()); len(got) != 3 {
				t.Errorf("spare: %v", got)
			}
			end(o)
			if got := chunktest.Files(t, j.parts()); len(got) > 0 || o.TakeSpare() != "" {
				t.Errorf("left: %v", got)
			}
		})
	}
}
