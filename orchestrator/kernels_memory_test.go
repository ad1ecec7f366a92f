package orchestrator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// memory has room for a fixed number of records, logs its requests, and finds some
// records too large even alone.
type memory struct {
	plugins.Base
	config struct {
		Room int
		Log  string
	}
	device plugins.Device
}

func (m *memory) Open(_ context.Context, device plugins.Device, config plugins.Config) error {
	m.device = device
	return config.Decode(&m.config)
}

func (m *memory) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	n := batch.Len()
	fits := n <= m.config.Room
	for i := range n {
		fits = fits && !bytes.Contains(batch.Record(i), []byte(`"large"`))
		// Too large for all but one device.
		fits = fits && !bytes.Contains(batch.Record(i), fmt.Appendf(nil, `"not on %d"`, m.device.Index))
		results.Unchanged(i)
	}
	log, err := os.OpenFile(m.config.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "%d %d %t %s\n", m.device.Index, n, fits, batch.Record(0))
	log.Close()
	if !fits {
		return plugins.OutOfMemory(errors.New("out of memory"))
	}
	time.Sleep(2 * time.Millisecond)
	return nil
}

// volume has room for a number of records times the length of the longest text, and logs
// the size of each batch and whether it fit.
type volume struct{ memory }

func (v *volume) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	longest := 0
	for i := range batch.Len() {
		text, err := batch.Text(nil, i, "text")
		if err != nil {
			return err
		}
		longest = max(longest, len(text))
		results.Unchanged(i)
	}
	fits := longest*batch.Len() <= v.config.Room
	log, err := os.OpenFile(v.config.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "%d\n", batch.Len())
	if !fits {
		fmt.Fprintln(log, "false")
		err = plugins.OutOfMemory(errors.New("out of memory"))
	}
	return errors.Join(err, log.Close())
}

// tenants share a device, represented by files in a folder; a record that says "wide"
// fits only if there is no other tenant. They start when all have arrived.
type tenants struct {
	plugins.Base
	config struct {
		Dir     string
		Arrived string // a folder, too
		All     int
	}
	place string
}

func (k *tenants) Open(_ context.Context, device plugins.Device, config plugins.Config) error {
	if err := config.Decode(&k.config); err != nil {
		return err
	}
	k.place = fmt.Sprintf("%s/%d-%d", k.config.Dir, device.Index, os.Getpid())
	return errors.Join(os.WriteFile(k.place, nil, 0o666), os.WriteFile(k.config.Arrived+"/"+fmt.Sprint(os.Getpid()), nil, 0o666))
}

func (k *tenants) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if arrived, err := os.ReadDir(k.config.Arrived); err != nil || len(arrived) >= k.config.All {
			break
		}
	}
	time.Sleep(time.Millisecond)
	tenants, err := k.living()
	if err != nil {
		return err
	}
	for i := range batch.Len() {
		if bytes.Contains(batch.Record(i), []byte(`"wide"`)) && tenants > 1 {
			return plugins.OutOfMemory(errors.New("out of memory"))
		}
		results.Unchanged(i)
	}
	return nil
}

// living counts those that hold memory: a killed one holds none.
func (k *tenants) living() (n int, err error) {
	places, err := os.ReadDir(k.config.Dir)
	for _, place := range places {
		var device, pid int
		if _, err := fmt.Sscanf(place.Name(), "%d-%d", &device, &pid); err == nil && syscall.Kill(pid, 0) == nil {
			n++
		}
	}
	return n, err
}

// Close takes a while, during which the memory is not free yet.
func (k *tenants) Close() error {
	time.Sleep(200 * time.Millisecond)
	return os.Remove(k.place)
}

// hoarder holds framework memory and frees its cache on request. It computes until a
// file exists.
type hoarder struct {
	plugins.Base
	config  struct{ Until string }
	trimmed atomic.Bool
}

func (h *hoarder) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	return plugins.Info{CanTrim: true}, config.Decode(&h.config)
}

func (h *hoarder) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	if _, err := os.Stat(h.config.Until); err != nil {
		time.Sleep(20 * time.Millisecond)
	}
	for i := range batch.Len() {
		results.Unchanged(i)
	}
	return nil
}

func (h *hoarder) Report() plugins.Report {
	memory := plugins.FrameworkMemory{Library: "torch", Allocated: 10, Cached: 100}
	if h.trimmed.Load() {
		memory.Cached = 10
	}
	return plugins.Report{Memory: memory}
}

func (h *hoarder) Trim(context.Context) error {
	h.trimmed.Store(true)
	return nil
}
