package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/gpurun/gpurun/examples/cuda-kernel/cuda"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kerneltest"
	"github.com/gpurun/gpurun/plugins/minhash"
	"github.com/gpurun/gpurun/plugins/process"
)

var (
	gpuDevice = plugins.Device{Name: "GPU 0", GPU: true, Count: 1, Threads: 3}
	cpuDevice = plugins.Device{Name: "CPU 0", Threads: 2}
)

func TestConformance(t *testing.T) {
	t.Run("CPU", func(t *testing.T) {
		kerneltest.Run(t, func() plugins.Kernel { return &kernel{} }, kerneltest.Options{Tolerance: -1, Device: cpuDevice})
	})
	t.Run("fake GPU", func(t *testing.T) {
		kerneltest.Run(t, func() plugins.Kernel { return &kernel{load: newFakeDriver().load} }, kerneltest.Options{Tolerance: -1, Device: gpuDevice})
	})
}

// Runs the program itself, as a worker starts it. With make test-all it is built as make
// builds it, without cgo, for which nearly everything is compiled again.
func TestProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "minhash-cuda")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, ".")
	if os.Getenv("GPURUN_TEST_ALL") != "" {
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var log strings.Builder
	kerneltest.RunBinary(t, process.Command{Path: program, Log: &log}, kerneltest.Options{Tolerance: -1, Device: cpuDevice})
	if !strings.Contains(log.String(), "computing on the CPU") {
		t.Errorf("the log does not say that it computes on the CPU: %s", log.String())
	}
}

// kernel.ptx must be rebuilt after every change of kernel.cu.
func TestPTXBelongsToSource(t *testing.T) {
	source, err := os.ReadFile("kernel.cu")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(source)
	first, rest, _ := strings.Cut(string(ptx), "\n")
	if want := "// kernel.cu sha256 " + hex.EncodeToString(sum[:]); first != want {
		t.Errorf("kernel.ptx was built from a different kernel.cu: run make ptx on a machine with nvcc\n%s\n%s", first, want)
	}
	if !strings.Contains(rest, "// made by make ptx with -arch=compute_75 and nvcc 1") {
		t.Error("kernel.ptx does not say how it was built")
	}
	first = fmt.Sprintf("minhash_param_0[%d]", unsafe.Sizeof(parameters{}))
	for _, want := range []string{".target sm_75\n", ".entry minhash(", first} {
		if !strings.Contains(rest, want) {
			t.Errorf("kernel.ptx has no %q", want)
		}
	}
}

func open(t testing.TB, k plugins.Kernel, device plugins.Device, config string) plugins.Kernel {
	t.Helper()
	if err := k.Open(context.Background(), device, plugins.Config(config)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// signatures computes a batch and returns the JSON of each result.
func signatures(t testing.TB, k plugins.Kernel, records [][]byte) []string {
	t.Helper()
	results, err := plugins.Call(context.Background(), k, plugins.NewBatch(records))
	if err != nil {
		t.Fatal(err)
	}
	list := make([]string, results.Len())
	for i := range list {
		if list[i] = results.At(i).Message; list[i] == "" {
			list[i] = string(results.ColumnList()[0].AppendValue(nil, i))
		}
	}
	return list
}

// configs cover the different code paths of kernel.cu.
var configs = []string{
	`{}`,
	`{"scheme":"legacy"}`,
	`{"shingle":"char"}`,
	`{"shingle":"char","size":9,"scheme":"legacy","num_perm":16}`,
	`{"size":1,"num_perm":5,"seed":0}`,
	`{"size":13,"num_perm":129,"lower":true}`,
	`{"num_perm":256,"scheme":"legacy","seed":42}`,
	`{"num_perm":700,"seed":4294967295,"size":2}`,
	`{"num_perm":1000,"size":40,"scheme":"legacy","shingle":"char"}`,
	`{"size":1000,"num_perm":33}`,
}

// randomRecords returns texts of many lengths: empty ones, one shingle, words of one
// letter and of hundreds, letters of one to four bytes, lengths around the boundaries of
// SHA-1 blocks and of tiles.
func randomRecords(random *rand.Rand, n int) [][]byte {
	letters := []rune("abcdefghijklmnopqrstuvwxyzABCÄÖÜäöüßéабвгд你好世界👍🚀 \t\n")
	ascii := []rune("abcdefghij  ")
	lengths := []int{0, 1, 2, 4, 5, 6, 31, 54, 55, 56, 57, 63, 64, 65, 119, 120, 121, 127, 128, 129, 1000, 4095, 4096, 4097, 8192, 20000}
	records := make([][]byte, n)
	for i := range records {
		length := lengths[i%len(lengths)]
		if i >= len(lengths) {
			length = random.IntN(3000)
		}
		from := letters
		if random.IntN(2) == 0 {
			from = ascii
		}
		spaces := random.IntN(100) // a third of this is the percentage of letters replaced by spaces
		text := make([]rune, length)
		for k := range text {
			if text[k] = from[random.IntN(len(from))]; random.IntN(100) < spaces/3 {
				text[k] = ' '
			}
		}
		records[i], _ = json.Marshal(map[string]any{"id": i, "text": string(text)})
	}
	records[n-1] = []byte(`{"id":1,"no":"text"}`)
	records[n-2] = []byte(`{"text":"` + strings.Repeat("x", 9000) + ` y"}`)
	return records
}

// equalToMinhash compares a kernel with the built-in one, with several batches in flight.
func equalToMinhash(t *testing.T, newKernel func() plugins.Kernel, device plugins.Device, records [][]byte) {
	for _, config := range configs {
		t.Run(config, func(t *testing.T) {
			k := open(t, newKernel(), device, config)
			want := signatures(t, open(t, minhash.New(), cpuDevice, config), records)
			cut := []int{0, len(records) / 3, len(records) / 2, len(records) - 1, len(records)}
			var under []*plugins.Results
			for i := range len(cut) - 1 {
				under = append(under, plugins.Submit(t.Context(), k, plugins.NewBatch(records[cut[i]:cut[i+1]])))
			}
			var got []string
			for _, results := range under {
				if err := results.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				for i := range results.Len() {
					if value := results.At(i).Message; value != "" {
						got = append(got, value)
					} else {
						got = append(got, string(results.ColumnList()[0].AppendValue(nil, i)))
					}
				}
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("record %d %.80s: got %.80s, want %.80s", i, records[i], got[i], want[i])
				}
			}
		})
	}
}

func TestEqualToMinhash(t *testing.T) {
	records := randomRecords(rand.New(rand.NewPCG(1, 2)), 40)
	for name, device := range map[string]plugins.Device{"CPU": cpuDevice, "fake GPU": gpuDevice} {
		t.Run(name, func(t *testing.T) {
			equalToMinhash(t, func() plugins.Kernel { return &kernel{load: newFakeDriver().load} }, device, records)
		})
	}
}

// Close frees everything that Open and batches allocated, even with batches in flight.
func TestCloseFreesEverything(t *testing.T) {
	fake := newFakeDriver()
	k := &kernel{load: fake.load}
	if err := k.Open(t.Context(), gpuDevice, nil); err != nil {
		t.Fatal(err)
	}
	var under []*plugins.Results
	for range inFlight {
		under = append(under, plugins.Submit(t.Context(), k, plugins.NewBatch([][]byte{[]byte(`{"text":"a b c"}`)})))
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	for _, results := range under {
		if err := results.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if leaks := fake.leaks(); leaks != noLeaks {
		t.Errorf("leaked: %s", leaks)
	}
}

// A batch that does not fit fails with OOM, and the kernel continues with smaller ones.
func TestOutOfMemory(t *testing.T) {
	fake := newFakeDriver()
	k := open(t, &kernel{load: fake.load}, gpuDevice, `{}`)
	fake.memory = 4 << 20
	large := [][]byte{[]byte(`{"text":"` + strings.Repeat("large ", 1<<20) + `"}`)}
	if _, err := plugins.Call(t.Context(), k, plugins.NewBatch(large)); fault.KindOf(err) != fault.OOM {
		t.Errorf("a batch that does not fit: %v", err)
	}
	small := [][]byte{[]byte(`{"text":"a b c"}`)}
	for range 2 * inFlight {
		got := signatures(t, k, small)
		if want := signatures(t, open(t, minhash.New(), cpuDevice, `{}`), small); !slices.Equal(got, want) {
			t.Errorf("a small batch afterwards: %.80s", got)
		}
		fake.memory = max(fake.memory, 4<<20) // other slots need some too
	}
}

// Report returns what the slots hold, and Trim frees it between batches.
func TestTrim(t *testing.T) {
	fake := newFakeDriver()
	k := &kernel{load: fake.load}
	open(t, k, gpuDevice, `{}`)
	batch := [][]byte{[]byte(`{"text":"a b c"}`)}
	want := signatures(t, k, batch)
	before := fake.memory
	if held := k.Report().Memory; held.Cached == 0 || held.Library != "cuda" {
		t.Errorf("memory %+v", held)
	}
	if err := k.Trim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fake.memory <= before || k.Report().Memory.Cached != 0 {
		t.Errorf("%d bytes were free before and %d after; memory %+v", before, fake.memory, k.Report().Memory)
	}
	if got := signatures(t, k, batch); !slices.Equal(got, want) {
		t.Errorf("after Trim: %.60s", got)
	}
}

// CUDA errors map to the kinds that gpurun acts on.
func TestBatchErrors(t *testing.T) {
	for _, test := range []struct {
		call string
		code cuda.Code
		want fault.Kind
	}{
		{"cuMemAlloc", 2, fault.OOM},
		{"cuMemHostAlloc", 2, fault.OOM},
		{"cuLaunchKernel", 2, fault.OOM},
		{"cuMemcpyHtoDAsync", 214, fault.Device},
		{"cuEventSynchronize", 214, fault.Device},
		{"cuEventSynchronize", 100, fault.Device},
		{"cuCtxSetCurrent", 46, fault.Device},
		{"cuEventSynchronize", 700, fault.Crash},
		{"cuMemcpyDtoHAsync", 999, fault.Crash},
		{"cuLaunchKernel", 1, fault.Batch},
	} {
		fake := newFakeDriver()
		k := &kernel{load: fake.load}
		if err := k.Open(t.Context(), gpuDevice, nil); err != nil {
			t.Fatal(err)
		}
		fake.mu.Lock()
		fake.failures[test.call] = test.code
		fake.mu.Unlock()
		_, err := plugins.Call(t.Context(), k, plugins.NewBatch([][]byte{[]byte(`{"text":"a"}`)}))
		if fault.KindOf(err) != test.want || !strings.Contains(err.Error(), test.call+": CUDA") {
			t.Errorf("%s %d: %s: %v", test.call, test.code, fault.KindOf(err), err)
		}
		fake.mu.Lock()
		delete(fake.failures, test.call)
		fake.mu.Unlock()
		if err := k.Close(); err != nil || fake.leaks() != noLeaks {
			t.Errorf("%s %d: close: %v; leaked: %s", test.call, test.code, err, fake.leaks())
		}
	}
}

func TestWithoutDriver(t *testing.T) {
	missing := func() (*cuda.Driver, error) { return nil, errors.New("no NVIDIA driver: libcuda.so.1 not found") }
	err := (&kernel{load: missing}).Open(t.Context(), gpuDevice, nil)
	if err == nil || !strings.Contains(err.Error(), "libcuda.so.1") || !strings.Contains(err.Error(), "select CPU devices") {
		t.Errorf("on a GPU: %v", err)
	}
	k := open(t, &kernel{load: missing}, cpuDevice, `{}`)
	if got := signatures(t, k, [][]byte{[]byte(`{"text":"a"}`)}); !strings.HasPrefix(got[0], "[") {
		t.Errorf("on a CPU: %s", got)
	}
}

func TestUnusablePTX(t *testing.T) {
	for code, want := range map[cuda.Code]string{
		cuda.UnsupportedPTXVersion: "driver is too old",
		cuda.InvalidPTX:            "Fake GPU: it needs compute capability 7.5",
	} {
		fake := newFakeDriver()
		fake.failures["cuModuleLoadDataEx"] = code
		if err := (&kernel{load: fake.load}).Open(t.Context(), gpuDevice, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", code, err)
		}
	}
}
