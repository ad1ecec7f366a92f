package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// startShared starts one of the programs and describes it, so that it uses its arena if
// it has one.
func startShared(t testing.TB, command Command) *Process {
	t.Helper()
	p, err := Start(t.Context(), command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if _, err := p.Describe(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return p
}

// ask sends a kernel one word, padded so that it is placed in the arena, and returns the
// answer.
func ask(t *testing.T, p *Process, word string) string {
	t.Helper()
	results, err := plugins.Call(t.Context(), p, words(word+strings.Repeat(" ", protocol.InlineBelow)))
	if err != nil {
		t.Fatalf("%s: %v", word, err)
	}
	var answer string
	if lines := results.At(0).Lines; len(lines) != 1 || json.Unmarshal(lines[0], &answer) != nil {
		t.Fatalf("%s: %s %q", word, results.At(0).Verdict, lines)
	}
	return answer
}

// mapping finds the mapping of data in this process, by its first byte.
func mapping(t *testing.T, data []byte) (line string) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	address := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err == nil && from <= address && address < to {
			return line
		}
	}
	return ""
}

// A kernel that writes to a record crashes and leaves the record unchanged.
func TestKernelWritesToItsRecord(t *testing.T) {
	nothingLeft(t)
	p := startShared(t, program(t, "vandal"))
	batch, memory := place(t, p.link.arena, 1, []byte(`"innocent"`), []byte(`"write"`))
	defer memory.Free()
	_, err := plugins.Call(t.Context(), p, batch)
	if e := fault.As(err); e == nil || e.Kind != fault.Crash || !strings.Contains(e.Detail, "the kernel wrote to a record") || !strings.Contains(e.Detail, "vandal.Process") {
		t.Errorf("error: %#v", err)
	}
	if string(batch.Record(1)) != `"write"` {
		t.Errorf("the record is %s", batch.Record(1))
	}
}

// A kernel that has the descriptor can neither shrink nor grow the memory.
func TestKernelAttacksTheArena(t *testing.T) {
	nothingLeft(t)
	p := startShared(t, program(t, "vandal"))
	if done := ask(t, p, "attack"); done != "" {
		t.Errorf("it could: %s", done)
	}
	batch, memory := place(t, p.link.arena, 1, bytes.Repeat([]byte("1"), 100_000))
	defer memory.Free()
	if _, err := plugins.Call(t.Context(), p, batch); err != nil {
		t.Errorf("a batch afterwards: %v", err)
	}
	clear(p.link.arena.Own[len(p.link.arena.Own)-1:]) // no SIGBUS
	_ = bytes.Count(p.link.arena.Peer[len(p.link.arena.Peer)-1:], []byte{0})
}

// The children of a kernel do not inherit the arena.
func TestArenaIsNotForChildren(t *testing.T) {
	nothingLeft(t)
	t.Setenv(protocol.ArenaVariable, "3") // a worker that a kernel started
	p := startShared(t, program(t, "vandal"))
	if environment := ask(t, p, "environment"); strings.Contains(environment, "GPURUN_ARENA") || !strings.Contains(environment, "PATH=") {
		t.Errorf("a child's environment: %s", environment)
	}
	if seen := ask(t, p, "descriptors"); strings.Contains(seen, "memfd") || !strings.HasSuffix(seen, "its own: ") {
		t.Errorf("a child's descriptors: %s", seen)
	}
	for _, pid := range []int{os.Getpid(), p.Pid()} {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) == 0 {
			t.Fatalf("%d descriptors in %s: %v", len(entries), dir, err)
		}
		for _, entry := range entries {
			// A descriptor closed in the meantime has no link.
			if what, _ := os.Readlink(filepath.Join(dir, entry.Name())); strings.Contains(what, "gpurun-arena") {
				t.Errorf("%s/%s is %s", dir, entry.Name(), what)
			}
		}
	}
}

func TestEachProcessHasItsOwnArena(t *testing.T) {
	nothingLeft(t)
	first, second := startShared(t, program(t, "vandal")), startShared(t, program(t, "vandal"))
	if a, b := ask(t, first, "inode"), ask(t, second, "inode"); a == b || a == "" {
		t.Errorf("inodes %s and %s", a, b)
	}
	batch, memory := place(t, first.link.arena, 1, []byte(`"of the first"`))
	defer memory.Free()
	for _, p := range []*Process{second, first} {
		if _, err := plugins.Call(t.Context(), p, batch); err != nil {
			t.Error(err)
		}
	}
}

// A kernel does not mistake another descriptor for the arena: a wrapper may have closed
// the arena and opened another file.
func TestDescriptorIsSomethingElse(t *testing.T) {
	for _, name := range []string{"another file", "no descriptor", "no address space"} {
		t.Run(name, func(t *testing.T) {
			nothingLeft(t)
			command := program(t, name)
			var log bytes.Buffer
			command.Log = &log
			p := startShared(t, command)
			if p.link.sharedArena() != nil || p.Alloc(1) != nil {
				t.Error("it claims to share memory")
			}
			if got := ask(t, p, "shared"); name != "another file" && got != "false" {
				t.Errorf("it has mapped an arena: %s", got)
			}
			big := bytes.Repeat([]byte("1"), 100_000)
			results, err := plugins.Call(t.Context(), p, plugins.NewBatch([][]byte{big, []byte(`"large"`)}))
			if err != nil || results.At(0).Verdict != plugins.Unchanged || len(results.At(1).Lines[0]) != protocol.Outsized {
				t.Errorf("a batch: %v", err)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if n := strings.Count(log.String(), "receiving records through the socket, which is slower"); n != 1 {
				t.Errorf("the log has the message %d times: %s", n, log.String())
			}
		})
	}
}

// If the environment does not allow an arena, gpurun uses a smaller one or none, and
// everything still works.
func TestRestrictedHosts(t *testing.T) {
	for restriction, want := range map[string]uint64{
		"none": protocol.ArenaSize, "inline": 0, "memfd": 0,
		"file size": 0, "larger file size": protocol.SmallArenaSize,
		"address space": 0, "larger address space": protocol.SmallArenaSize,
	} {
		t.Run(restriction, func(t *testing.T) {
			command := exec.Command(os.Args[0])
			command.Env = append(os.Environ(), kernelVariable+"=restricted", "GPURUN_TEST_RESTRICT="+restriction, "TMPDIR="+socketDir(t))
			command.Stderr = os.Stderr
			out, err := command.Output()
			if err != nil {
				t.Fatalf("it ended: %v", err)
			}
			var got outcome
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			lines := 0
			if want == 0 && restriction != "inline" {
				lines = 1
			}
			if got.Err != "" || got.Size != want || strings.Count(got.Log, "sending records through the socket, which is slower") != lines {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Regions are freed whatever the outcome of a batch, and the memory is unmapped when its
// last user is done.
func TestArenaLifetime(t *testing.T) {
	large := bytes.Repeat([]byte("8"), 100_000)
	ends := map[string]func(*testing.T, *Process){
		"close":          func(t *testing.T, p *Process) { _ = p.Close() },
		"kill":           func(t *testing.T, p *Process) { p.Kill() },
		"crash and kill": func(t *testing.T, p *Process) { _, _ = plugins.Call(t.Context(), p, words("exit")); p.Kill() },
		"close with batches in flight": func(t *testing.T, p *Process) {
			for range 5 {
				plugins.Submit(t.Context(), p, plugins.NewBatch([][]byte{large, []byte(`"large"`)}))
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		},
		"kill with batches in flight": func(t *testing.T, p *Process) {
			for range 5 {
				plugins.Submit(t.Context(), p, plugins.NewBatch([][]byte{large, []byte(`"hang"`)}))
			}
			p.Kill()
		},
		"kill while batches come": func(t *testing.T, p *Process) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i := 0; i < 40 && !p.Broken(); i++ {
					plugins.Submit(t.Context(), p, plugins.NewBatch([][]byte{large, []byte(`"large"`)}))
				}
			}()
			if _, err := plugins.Call(t.Context(), p, words("a")); err != nil {
				t.Error(err)
			}
			p.Kill()
			<-done
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			nothingLeft(t)
			p := startShared(t, program(t, "vandal"))
			for i := range 50 {
				record := []byte(fmt.Sprint(i))
				switch i % 3 {
				case 1:
					record = []byte(`"error"`)
				case 2:
					record = large
				}
				_, _ = plugins.Call(t.Context(), p, plugins.NewBatch([][]byte{large, record}))
			}
			if n := p.link.arena.Used(); n != 0 {
				t.Errorf("%d regions are used after the batches", n)
			}
			kept := p.Alloc(1000)
			inode := strings.Fields(mapping(t, kept.Bytes()))[4]
			copy(kept.Bytes(), "still here")
			end(t, p)
			eventually(t, "all regions but one are given back", func() bool { return p.link.arena.Used() == 1 })
			if p.Alloc(1) != nil {
				t.Error("Alloc returned memory after Close")
			}
			if string(kept.Bytes()[:10]) != "still here" {
				t.Errorf("it reads %q", kept.Bytes()[:10])
			}
			data, peer := kept.Bytes(), p.link.arena.Peer
			kept.Free()
			eventually(t, "it is unmapped", func() bool {
				return !strings.Contains(mapping(t, data), inode) && !strings.Contains(mapping(t, peer), inode)
			})
			if p.link.arena.Used() != 0 {
				t.Error("a region is used")
			}
			if _, err := plugins.Call(t.Context(), p, words("a")); fault.KindOf(err) != fault.Crash {
				t.Errorf("a batch after Close: %v", err)
			}
		})
	}
}

// The kernel's side frees what the worker has copied.
func TestReplyRegionsAreGivenBack(t *testing.T) {
	host, kernel := arenaPair(t, protocol.SmallArenaSize)
	line := bytes.Repeat([]byte("5"), 100_000)
	proxy := connected(t, filler{fill: func(r *plugins.Results) error { r.Line(0, line); return nil }}, host, kernel)
	for i := range 100 {
		batch, memory := place(t, host, 0, fmt.Append(nil, i))
		if _, err := plugins.Call(t.Context(), proxy, batch); err != nil {
			t.Fatal(err)
		}
		memory.Free()
		if n := kernel.Used(); n > 1 {
			t.Fatalf("%d answers are kept", n)
		}
	}
	if used := resident(t, kernel.Own); used > 4*len(line) {
		t.Errorf("%d bytes were used for answers that came one at a time", used)
	}
	if n := host.Used(); n != 0 {
		t.Errorf("%d regions of requests are used", n)
	}
}

// resident returns how many bytes of data are in physical memory.
func resident(t *testing.T, data []byte) int {
	t.Helper()
	pages := make([]byte, len(data)/os.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)),
		uintptr(unsafe.Pointer(unsafe.SliceData(pages))))
	if errno != 0 {
		t.Fatal(errno)
	}
	n := 0
	for _, page := range pages {
		n += int(page & 1)
	}
	return n * os.Getpagesize()
}

// An outsized batch does not keep its memory for the rest of the job.
func TestOutsizedPagesAreGivenBack(t *testing.T) {
	nothingLeft(t)
	p := startShared(t, program(t, "vandal"))
	huge := bytes.Repeat([]byte("3"), 4*protocol.Outsized)
	for range 3 {
		memory := p.Alloc(len(huge))
		copy(memory.Bytes(), huge)
		if n := resident(t, p.link.arena.Own); n < len(huge) {
			t.Errorf("%d bytes are resident while it is used", n)
		}
		batch := plugins.NewBatch([][]byte{memory.Bytes()[:len(huge)]})
		if _, err := plugins.Call(t.Context(), p, batch); err != nil {
			t.Fatal(err)
		}
		memory.Free()
		results, err := plugins.Call(t.Context(), p, plugins.NewBatch([][]byte{[]byte(`"large"`), []byte(`"large"`)}))
		if err != nil || len(results.At(1).Lines[0]) != protocol.Outsized {
			t.Fatal(err)
		}
	}
	works(t, p) // tells the kernel that its last answer has been copied
	if own, peer := resident(t, p.link.arena.Own), resident(t, p.link.arena.Peer); own > protocol.Outsized || peer > protocol.Outsized {
		t.Errorf("%d and %d bytes are still resident", own, peer)
	}
}

// A core dump of a crashed kernel does not contain gigabytes of holes.
func TestArenaIsNotDumped(t *testing.T) {
	host, kernel := arenaPair(t, 1<<20)
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	for _, half := range [][]byte{host.Own, host.Peer, kernel.Own, kernel.Peer} {
		_, rest, _ := strings.Cut(string(smaps), mapping(t, half))
		_, rest, _ = strings.Cut(rest, "VmFlags:")
		flags, _, _ := strings.Cut(rest, "\n")
		if !strings.Contains(flags+" ", " dd ") {
			t.Errorf("flags of a half: %s", flags)
		}
	}
}

// The tests of a kernel create thousands of loopbacks: they must not leak.
func TestLoopbackLeavesNoMemory(t *testing.T) {
	line := bytes.Repeat([]byte("5"), 1<<20)
	var kernels []*protocol.Arena
	for range 3 {
		host, kernel, end := pairedArenas(protocol.SmallArenaSize)
		proxy, disconnect := loopback(filler{fill: func(r *plugins.Results) error { r.Line(0, line); return nil }}, host, kernel)
		if _, err := proxy.Describe(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := plugins.Call(t.Context(), proxy, plugins.NewBatch([][]byte{line})); err != nil {
			t.Fatal(err)
		}
		disconnect()
		end()
		kernels = append(kernels, kernel)
	}
	for _, kernel := range kernels {
		eventually(t, "its memory is given back", func() bool {
			return resident(t, kernel.Own) == 0 && resident(t, kernel.Peer) == 0
		})
	}
}
