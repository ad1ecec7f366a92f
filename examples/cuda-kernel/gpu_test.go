//go:build gpu

package main

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/examples/cuda-kernel/cuda"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kerneltest"
	"github.com/gpurun/gpurun/plugins/minhash"
)

// These tests need a GPU: make gpu-test.

const victimVariable = "MINHASH_CUDA_TEST_VICTIM"

// TestMain is also the process that TestGPUKilled kills.
func TestMain(m *testing.M) {
	if path := os.Getenv("MINHASH_CUDA_PTX"); path != "" { // test another PTX file
		var err error
		if ptx, err = os.ReadFile(path); err != nil {
			panic(err)
		}
	}
	if os.Getenv(victimVariable) != "" {
		beVictim()
	}
	os.Exit(m.Run())
}

func newGPUKernel() plugins.Kernel { return &kernel{} }

func TestGPUConformance(t *testing.T) {
	kerneltest.Run(t, newGPUKernel, kerneltest.Options{Tolerance: -1, Device: gpuDevice})
}

// Inputs differ in each run; the log has the seed to reproduce a failure.
func TestGPUEqualToMinhash(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	records := randomRecords(rand.New(rand.NewPCG(seed, 0)), 500)
	megabyte := strings.Repeat("ein Megabyte Text, Größe zählt; ", 1<<20/34)
	records = append(records, []byte(`{"text":"`+megabyte+`"}`), []byte(`{"text":"`+strings.Repeat("y", 1<<20)+`"}`))
	equalToMinhash(t, newGPUKernel, gpuDevice, records)
}

// Tests the rare cases of the division, which random texts would not hit.
func TestGPULegacyBoundaries(t *testing.T) {
	driver, err := cuda.Load()
	if err != nil {
		t.Fatal(err)
	}
	options, _ := minhash.Parse(plugins.Config(`{"scheme":"legacy","num_perm":200}`))
	g, err := openGPU(driver, options, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	const prime = 1<<61 - 1
	digest := sha1.Sum([]byte("one shingle"))
	h := uint64(binary.LittleEndian.Uint32(digest[:]))
	random := rand.New(rand.NewPCG(1, 2))
	table, want := make([]uint64, 2*perPass), make([]uint32, options.NumPerm)
	for i := range options.NumPerm {
		border := []uint64{0, 1 << 61, 2 << 61, 7 << 61, 1<<61 - 1, 2*prime + 1, 7 * prime}[i%7]
		target := border + uint64(i/7) - 14
		a := 1 + random.Uint64N(prime-1)
		table[2*i], table[2*i+1] = a, target-a*h+1
		want[i] = uint32(new(big.Int).Mod(new(big.Int).SetUint64(target), big.NewInt(prime)).Uint64())
	}
	s := g.slots[0]
	err = g.device.Do(func() error { return s.stream.CopyIn(g.parameters.permutations, bytesOf(table)) })
	if err == nil {
		err = g.start(s, plugins.NewBatch([][]byte{[]byte(`{"text":"one shingle"}`)}))
	}
	if err == nil {
		err = g.wait(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := valuesOf[uint32](s.signatures.used()); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Runs several workers on one GPU, each with batches in flight.
func TestGPUShared(t *testing.T) {
	records := randomRecords(rand.New(rand.NewPCG(5, 6)), 200)
	want := signatures(t, open(t, minhash.New(), cpuDevice, `{}`), records)
	var workers sync.WaitGroup
	for range 3 {
		k := open(t, newGPUKernel(), gpuDevice, `{}`)
		workers.Go(func() {
			var under []*plugins.Results
			for range 40 {
				under = append(under, plugins.Submit(t.Context(), k, plugins.NewBatch(records)))
				if len(under) < inFlight {
					continue
				}
				if err := under[0].Wait(t.Context()); err != nil {
					t.Error(err)
					return
				}
				if got := string(under[0].ColumnList()[0].AppendValue(nil, 7)); got != want[7] {
					t.Errorf("got %.60s, want %.60s", got, want[7])
				}
				under = under[1:]
			}
			for _, results := range under {
				if err := results.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
}

// When the card is full, a batch fails with OOM, and only that one.
func TestGPUOutOfMemory(t *testing.T) {
	k := open(t, newGPUKernel(), gpuDevice, `{}`)
	driver, err := cuda.Load()
	if err != nil {
		t.Fatal(err)
	}
	device, err := driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	large := [][]byte{[]byte(`{"text":"` + strings.Repeat("large ", 20<<20) + `"}`)}
	small := [][]byte{[]byte(`{"text":"small"}`)}
	want := signatures(t, open(t, minhash.New(), cpuDevice, `{}`), small)
	err = device.Do(func() error {
		taken, err := takeAll(device)
		defer func() {
			for _, pointer := range taken {
				if err := device.Free(pointer); err != nil {
					t.Error(err)
				}
			}
		}()
		if err != nil {
			return err
		}
		if _, err := plugins.Call(t.Context(), k, plugins.NewBatch(large)); fault.KindOf(err) != fault.OOM {
			t.Errorf("with a full card: %s: %v", fault.KindOf(err), err)
		} else {
			t.Logf("with a full card: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := signatures(t, k, small); !slices.Equal(got, want) {
		t.Errorf("after the failure: %.60s", got)
	}
	signatures(t, k, large)
}

// takeAll allocates device memory until less than 64 MiB are free.
func takeAll(device *cuda.Device) (taken []cuda.Pointer, err error) {
	for size := 1 << 36; size >= 1<<26; {
		pointer, err := device.Alloc(size)
		if err != nil {
			size /= 2
			continue
		}
		taken = append(taken, pointer)
	}
	if len(taken) == 0 {
		return nil, fmt.Errorf("no device memory to allocate")
	}
	return taken, nil
}

// A process killed in the middle of its work leaves no memory allocated on the card.
func TestGPUKilled(t *testing.T) {
	driver, err := cuda.Load()
	if err != nil {
		t.Fatal(err)
	}
	device, err := driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	before := freeMemory(t, device)
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), victimVariable+"=1")
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the victim wrote %q: %v", line, err)
	}
	during := freeMemory(t, device)
	_ = victim.Process.Kill()
	_ = victim.Wait()
	if before-during < 256<<20 {
		t.Errorf("the victim held only %d MiB", (before-during)>>20)
	}
	waitForMemory(t, device, before)
}

func freeMemory(t *testing.T, device *cuda.Device) (free uint64) {
	t.Helper()
	err := device.Do(func() (err error) { free, _, err = device.Memory(); return err })
	if err != nil {
		t.Fatal(err)
	}
	return free
}

// waitForMemory waits until want bytes are free: the driver needs a moment to free them.
func waitForMemory(t *testing.T, device *cuda.Device, want uint64) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for freeMemory(t, device) < want {
		if time.Now().After(deadline) {
			t.Fatalf("%d MiB are still allocated", (want-freeMemory(t, device))>>20)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// beVictim computes large batches forever, and prints a line once they are in flight.
func beVictim() {
	k := &kernel{}
	if err := k.Open(context.Background(), gpuDevice, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	record := []byte(`{"text":"` + strings.Repeat("words of a victim ", 4<<20) + `"}`)
	var under []*plugins.Results
	for i := 0; ; i++ {
		under = append(under, plugins.Submit(context.Background(), k, plugins.NewBatch([][]byte{record})))
		if len(under) == inFlight {
			_ = under[0].Wait(context.Background())
			under = under[1:]
		}
		if i == 2*inFlight {
			fmt.Println("in flight")
		}
	}
}
