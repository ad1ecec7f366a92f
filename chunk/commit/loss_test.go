package commit

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
)

// The functions below interrupt a job in different ways.

// stop: the job was asked to stop.
func stop(_ testing.TB, tr *trial) string {
	tr.output.Abandon()
	tr.journal.Close()
	return "stop"
}

// kill: the process died but the machine did not, so every written byte is there. A copy of
// the folder is resumed, so that nothing of the old process can help. It is made between
// two durable points, because copying a changing folder would give a state that never
// existed. (TestCrashPoints covers a death during a durable point, with real processes.)
func kill(t testing.TB, tr *trial) string {
	_ = tr.output.awaitPoint()
	dir := t.TempDir()
	chunktest.Must(t, os.CopyFS(dir, os.DirFS(tr.dir)))
	tr.crash()
	tr.dir = dir
	return "kill"
}

// rot: bytes of the durable output are damaged or missing.
func rot(t testing.TB, tr *trial) string {
	kill(t, tr)
	paths := []string{tr.path("failures.partial")}
	if tr.apart {
		paths = append(paths, tr.path("errors.partial"))
	}
	if tr.parts == 0 {
		paths = append(paths, tr.path("output.partial"))
	} else {
		for _, name := range chunktest.Files(t, tr.path("output.partial")) {
			paths = append(paths, tr.path("output.partial", name))
		}
	}
	path := paths[tr.r.IntN(len(paths))]
	if info, err := os.Stat(path); err == nil && info.Size() > 0 {
		losePart(t, tr.r, path)
	}
	return "rot of " + path[len(tr.dir):]
}

// powerLoss: anything that was not synced may be lost.
func powerLoss(t testing.TB, tr *trial) string {
	kill(t, tr)
	r := tr.r
	entries, err := ReadJournal(tr.path("journal"))
	chunktest.Must(t, err)
	var durable Durable
	synced := 0
	for i, e := range entries {
		if e.Durable != nil {
			durable, synced = *e.Durable, i+1
		}
	}
	_, starts := journalBytes(t, entries)
	loseTail(t, r, tr.path("journal"), int64(starts[synced]))
	for i, name := range Temporary {
		if i == chunk.Results && tr.parts > 0 {
			loseParts(t, tr, entries[:synced])
		} else if i != chunk.FailedRecords || tr.apart {
			loseTail(t, r, tr.path(name), durable.Sizes[i])
		}
	}
	for _, name := range chunktest.Files(t, tr.path(PartsDir)) {
		if r.IntN(2) == 0 {
			losePart(t, r, tr.path(PartsDir, name))
		}
	}
	chunktest.Write(t, tr.path(PartsDir, "stray.out"), []byte("nobody's"))
	return fmt.Sprintf("power loss at record %d", durable.Next)
}

// loseParts: parts that were finished at the last durable point survive, the part being
// written keeps its durable bytes, and later ones may be lost.
func loseParts(t testing.TB, tr *trial, durable []Entry) {
	t.Helper()
	state, err := Replay(durable)
	chunktest.Must(t, err)
	parts := state.cutParts(tr.options()).parts
	for i, name := range chunktest.Files(t, tr.path("output.partial")) {
		path := tr.path("output.partial", name)
		switch {
		case i < len(parts)-1:
		case i == len(parts)-1:
			loseTail(t, tr.r, path, parts[i].Bytes)
		case tr.r.IntN(2) == 0:
			chunktest.Must(t, os.Remove(path))
		default:
			loseTail(t, tr.r, path, 0)
		}
	}
}

// loseTail keeps the first bytes of a file. Some of the bytes after them are lost, zeroed
// or damaged.
func loseTail(t testing.TB, r *rand.Rand, path string, keep int64) {
	t.Helper()
	data, err := os.ReadFile(path)
	chunktest.Must(t, err)
	if int64(len(data)) < keep {
		t.Fatalf("%s has %d bytes, and %d are durable", path, len(data), keep)
	}
	kept := data[:keep+r.Int64N(int64(len(data))-keep+1)]
	switch r.IntN(4) {
	case 0:
		kept = append(kept, make([]byte, r.IntN(5000))...)
	case 1:
		for range r.IntN(100) {
			kept = append(kept, byte(r.IntN(256)))
		}
	case 2:
		if int64(len(kept)) > keep {
			kept[keep+r.Int64N(int64(len(kept))-keep)] ^= 1
		}
	}
	chunktest.Write(t, path, kept)
}

func losePart(t testing.TB, r *rand.Rand, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	chunktest.Must(t, err)
	switch r.IntN(5) {
	case 0:
		chunktest.Must(t, os.Remove(path))
	case 1:
		data[r.IntN(len(data))] ^= 1 << r.IntN(8)
		chunktest.Write(t, path, data)
	case 2:
		chunktest.Write(t, path, data[:r.IntN(len(data))])
	case 3:
		chunktest.Write(t, path, nil)
	case 4:
		chunktest.Write(t, path, make([]byte, len(data)))
	}
}
