package orchestrator_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
)

// company adds a checksum of its batch to each record: as with a model, whose padding and choice
// of algorithm change the last digits, a result depends on the records that it is computed with. A
// batch takes as long as its longest record times their number.
type company struct {
	plugins.Base
	config struct {
		Nanoseconds  int // for each byte
		Milliseconds int // for each batch on device 0
	}
	device plugins.Device
}

func (k *company) Open(_ context.Context, device plugins.Device, config plugins.Config) error {
	k.device = device
	return config.Decode(&k.config)
}

func (k *company) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	n, longest := batch.Len(), 0
	sum := crc32.NewIEEE()
	for i := range n {
		longest = max(longest, len(batch.Record(i)))
		_, _ = sum.Write(batch.Record(i))
	}
	time.Sleep(time.Duration(n * longest * k.config.Nanoseconds))
	if k.device.Index == 0 {
		time.Sleep(time.Duration(k.config.Milliseconds) * time.Millisecond)
	}
	sums := make([]int64, n)
	for i := range sums {
		sums[i] = int64(sum.Sum32())
		if bytes.Contains(batch.Record(i), []byte(`"fail"`)) {
			results.Fail(i, "rejected")
		}
	}
	results.Column(plugins.Int64s("company", 0, sums))
	return nil
}

// TestPlanDecidesBatches: which records are computed together depends on the plan alone.
// Whatever is killed, however the work is shared among workers of different speeds, and however
// often it is committed: a kernel whose results show it writes what an undisturbed run writes.
func TestPlanDecidesBatches(t *testing.T) {
	t.Parallel()
	rounds, _ := strconv.Atoi(cmp.Or(os.Getenv("GPURUN_COMPANY_ROUNDS"), "1"))
	seed, err := strconv.ParseUint(os.Getenv(soakSeedVariable), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	for name, change := range map[string]func(d jobDir, c *orchestrator.Config){
		"in input order":          func(jobDir, *orchestrator.Config) {},
		"in input order, by size": func(_ jobDir, c *orchestrator.Config) { c.Batching.Bytes = 700 },
		"grouped":                 func(_ jobDir, c *orchestrator.Config) { c.Batching.GroupBy = "text" },
		"grouped, by size":        func(_ jobDir, c *orchestrator.Config) { c.Batching.GroupBy, c.Batching.Bytes = "text", 700 },
		"grouped, by cost":        func(_ jobDir, c *orchestrator.Config) { c.Batching.GroupBy, c.Batching.Cost = "text", 300 },
		"grouped, several files": func(d jobDir, c *orchestrator.Config) {
			c.Batching.GroupBy = "text"
			severalFiles.change(d, c)
			c.Output.Errors = d.join("errors.jsonl") // which name files
		},
		"grouped, cut by bytes": func(_ jobDir, c *orchestrator.Config) {
			c.Batching.GroupBy, c.Input.Split = "text", input.SplitBytes
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Logf("%s=%d", soakSeedVariable, seed)
			s := &soak{random: rand.New(rand.NewPCG(seed, 0)), killed: make(map[string]int)}
			for round := range rounds {
				companyJob(t, s, change, fmt.Sprintf("company-%d-%d-%s", os.Getpid(), round, strings.ReplaceAll(name, " ", "-")))
			}
			t.Logf("%d kills %v in %d lives", s.kills, s.killed, s.lives)
		})
	}
}

var companyRecords = sync.OnceValue(func() string {
	return unequal(3000, map[int]string{700: `{"do":"fail","text":"é"}`, 1500: "no JSON"})
})

func companyJob(t *testing.T, s *soak, change func(d jobDir, c *orchestrator.Config), mark string) {
	t.Helper()
	job := func(config string) (jobDir, orchestrator.Config) {
		d := newJobDir(t, companyRecords())
		c := d.config("test-company")
		c.Devices.GPUs, c.Batching.Size, c.Batching.ChunksPerGPU = "cpu:2", 8, 4
		c.Resume.Checkpoint, c.Kernel.Config = 100*time.Millisecond, []byte(config)
		change(d, &c)
		return d, c
	}
	calm, undisturbed := job(`{}`)
	mustRun(t, calm, undisturbed)
	d, c := job(`{}`)
	c.Kernel.Config = []byte(fmt.Sprintf(`{"Nanoseconds":%d,"Milliseconds":%d}`, s.random.IntN(20_000), s.random.IntN(8)))
	temp := shortTemp(t)
	for life := 0; life < 100; life++ {
		end := s.live(t, c, mark, temp, life)
		awaitGone(t, mark)
		if end.done() {
			break
		}
		if !end.killed && end.err.Kind != "canceled" {
			t.Fatalf("life %d ended: %s\n%s", life, end, d.logs())
		}
	}
	compareCompany(t, results(calm, undisturbed), results(d, c))

	d, c = job(fmt.Sprintf(`{"Nanoseconds":2000,"Milliseconds":%d}`, s.random.IntN(5)))
	c.Control = new(orchestrator.Control)
	done := make(chan struct{})
	go func() {
		for pause := time.NewTicker(150 * time.Millisecond); ; {
			select {
			case <-pause.C:
				c.Control.Pause()
				time.Sleep(20 * time.Millisecond)
				c.Control.Resume()
			case <-done:
				pause.Stop()
				return
			}
		}
	}()
	mustRun(t, d, c)
	close(done)
	compareCompany(t, results(calm, undisturbed), results(d, c))
}

// compareCompany compares the files of two jobs.
func compareCompany(t *testing.T, all, got map[string]string) {
	t.Helper()
	for name, text := range all {
		want, differ := strings.Split(text, "\n"), 0
		for i, line := range strings.Split(got[name], "\n") {
			if i >= len(want) || line != want[i] {
				differ++
			}
		}
		if got[name] != text {
			t.Errorf("%d lines of %s differ", differ, name)
		}
	}
}
