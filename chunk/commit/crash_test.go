package commit

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/disktest"
)

// trialVariable makes the test binary run a job, as a process that can be killed.
const trialVariable = "GPURUN_CHUNK_TRIAL"

// trialSpec describes a trial to its child process.
type trialSpec struct {
	Dir     string
	Apart   bool
	Parts   int64
	Format  string
	Replace bool // an existing output
	Batch   int
	Planned []chunk.Chunk
	Seed    uint64
}

// trialUnit is the size of units in trials.
const trialUnit = 120

func TestMain(m *testing.M) {
	spec := os.Getenv(trialVariable)
	if spec == "" {
		os.Exit(m.Run())
	}
	if err := runTrial(spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runTrial(spec string) error {
	var s trialSpec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return err
	}
	durableBytes = 200
	format, err := encode.ByName(s.Format)
	if err != nil {
		return err
	}
	tr := trial{r: rand.New(rand.NewPCG(s.Seed, 0)), dir: s.Dir, apart: s.Apart, parts: s.Parts, replace: s.Replace, format: format, unit: trialUnit, planned: s.Planned, batch: s.Batch}
	if err := tr.open(); err != nil || tr.done {
		return err
	}
	for len(tr.todo) > 0 {
		if err := tr.step(); err != nil {
			return err
		}
	}
	return tr.output.Finish()
}

// run runs the trial in a separate process, which dies at the point if there is one. It
// reports whether it died.
func (s trialSpec) run(t *testing.T, point string) (died bool) {
	t.Helper()
	spec, err := json.Marshal(s)
	chunktest.Must(t, err)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), trialVariable+"="+string(spec), crash.Variable+"="+point, "GORACE=atexit_sleep_ms=0")
	said, err := child.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatalf("crash at %q: %v: %s", point, err, said)
	}
	return false
}

// newCalm returns a trial without disturbances.
func newCalm(r *rand.Rand, s trialSpec) *trial {
	format, _ := encode.ByName(s.Format)
	return &trial{r: r, apart: s.Apart, parts: s.Parts, format: format, unit: trialUnit, planned: s.Planned, batch: s.Batch}
}

// olderParts creates a folder of parts that another job left.
func olderParts(t testing.TB, dir string) {
	t.Helper()
	chunktest.Must(t, os.MkdirAll(dir, 0o777))
	old := []byte("old\n")
	chunktest.Write(t, filepath.Join(dir, linesPart(0)), old)
	sum, err := chunk.SumFile(t.Context(), filepath.Join(dir, linesPart(0)))
	chunktest.Must(t, err)
	m := NewManifest([]ManifestPart{{Name: linesPart(0), Records: 1, Lines: 1, Bytes: sum.Bytes, CRC32C: chunk.CRC(sum.CRC)}}, chunk.Counts{Records: 1, Succeeded: 1}, encode.Lines())
	chunktest.Must(t, m.write(dir))
}

// TestCrashPoints: a job killed at every point where the state on disk changes, the first
// time also in the resuming process, ends with the right output. Each point meets every pair of
// passing, parts and encoding; make test-all adds the other combinations of the three.
func TestCrashPoints(t *testing.T) {
	r := chunktest.Seeded(t)
	path := chunktest.Temporary(t, append(chunktest.Numbered(60), "\n\r\nno JSON\r\n\n"...))
	planned := plan(t, path, cutOptions{Chunks: 4, BatchSize: 3})
	spec := trialSpec{Batch: 3, Planned: planned}
	points := []string{"part-written", "journalled", "appended", "synced", "durable", "complete", "renamed", "copied", "moved", "linked"}
	unitPoints := []string{"unit-appended", "encoded"}
	for number, point := range append(append(points, "part-begun", "exchanged"), unitPoints...) {
		t.Run(point, func(t *testing.T) {
			for n, how := range []struct {
				passing int
				parts   int64
				format  string
			}{
				{1, 0, ""}, {4, 0, "jsonl.gz"}, {1, 150, "jsonl.gz"}, {4, 150, ""},
				{4, 0, ""}, {1, 0, "jsonl.zst"}, {4, 150, "jsonl.zst"}, {1, 150, ""},
			} {
				ofFolder, ofUnit := point == "part-begun" || point == "exchanged", slices.Contains(unitPoints, point)
				if ofFolder && how.parts == 0 || point == "linked" && how.parts > 0 || ofUnit && how.format == "" {
					continue
				}
				few := ofFolder || ofUnit || point == "linked" // four combinations, of two traits
				if !few && (n >= 4) != (number%2 == 1) && os.Getenv("GPURUN_TEST_ALL") == "" {
					continue
				}
				passing, spec := how.passing, spec
				spec.Dir, spec.Seed, spec.Apart, spec.Parts, spec.Format = t.TempDir(), r.Uint64(), passing%2 == 0, how.parts, how.format
				spec.Replace = point == "exchanged"
				if spec.Replace {
					olderParts(t, filepath.Join(spec.Dir, "out"))
				}
				if point == "copied" || point == "moved" { // to another file system
					chunktest.Must(t, os.Symlink(disktest.Mount(t, "4m"), filepath.Join(spec.Dir, "work")))
				}
				at := fmt.Sprintf("%s:%d", point, passing)
				if !spec.run(t, at) && passing == 1 {
					t.Errorf("%s was not reached", at)
				}
				if spec.Seed++; passing == 1 {
					spec.run(t, at)
					spec.Seed++
				}
				if spec.run(t, "") {
					t.Fatal("it died without a crash point")
				}
				calm := t.TempDir()
				tr := newCalm(r, spec)
				chunktest.Must(t, tr.undisturbed(calm))
				if diff := cmp.Diff(outcome(t, calm), outcome(t, spec.Dir)); diff != "" {
					t.Errorf("%s: %s", at, diff)
				}
				if left := chunktest.Files(t, filepath.Join(spec.Dir, "work")); len(left) != 3 {
					t.Errorf("%s: job folder: %v", at, left)
				}
			}
		})
	}
}
