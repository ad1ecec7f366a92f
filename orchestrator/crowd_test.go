package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// crowd is a kernel on a device that computes Lanes batches at a time and has memory
// for Fit kernels, 0 for any number.
type crowd struct {
	plugins.Base
	open   *os.File
	config struct {
		Dir        string // shared by all kernels
		Lanes, Fit int
		Batch      time.Duration
		Until      string // a file: once it exists, batches take no time
		Most       int    // Info.MaxWorkers
		Memory     uint64 // Info.MinMemory
		Beside     int    // an added kernel opens after this number of batches of others
		Cold       int    // the first batch ends when this number of kernels are open
		Together   int    // the first added kernels of this number of devices open together, and make Until
	}
}

func (c *crowd) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	err := config.Decode(&c.config)
	return plugins.Info{MaxWorkers: c.config.Most, MinMemory: c.config.Memory}, err
}

func (c *crowd) Open(_ context.Context, device plugins.Device, config plugins.Config) error {
	if err := config.Decode(&c.config); err != nil {
		return err
	}
	if err := c.awaitOthers(device); err != nil {
		return err
	}
	name := filepath.Join(c.config.Dir, fmt.Sprintf("open-%d-threads-%s", os.Getpid(), os.Getenv("OMP_NUM_THREADS")))
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	c.open = file // and locked until the process ends
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
}

// awaitOthers makes an added kernel wait for other kernels.
func (c *crowd) awaitOthers(device plugins.Device) error {
	name := fmt.Sprintf("-%d", device.Index)
	if os.Mkdir(filepath.Join(c.config.Dir, "first"+name), 0o700) == nil {
		return nil
	}
	touch(filepath.Join(c.config.Dir, "added"+name))
	count := func(pattern string) int {
		names, _ := filepath.Glob(filepath.Join(c.config.Dir, pattern))
		return len(names)
	}
	enough := count("batch-*") + c.config.Beside
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if count("added-*") >= c.config.Together && (c.config.Beside == 0 || count("batch-*") >= enough) {
			if c.config.Together > 0 {
				touch(c.config.Until)
			}
			return nil
		}
	}
	return errors.New("the others do nothing")
}

// living returns how many kernels are open.
func (c *crowd) living() (n int) {
	names, _ := filepath.Glob(filepath.Join(c.config.Dir, "open-*"))
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			continue
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil {
			n++
		}
		file.Close()
	}
	return n
}

func (c *crowd) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	if c.config.Fit > 0 && c.living() > c.config.Fit {
		return plugins.OutOfMemory(errors.New("no room"))
	}
	for deadline := time.Now().Add(time.Minute); c.config.Cold > 0 && c.living() < c.config.Cold; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("no other kernel opens")
		}
	}
	c.config.Cold = 0
	lane, err := c.lane()
	if err != nil {
		return err
	}
	pass(c.config.Batch, c.config.Until)
	lane.Close()
	if c.config.Beside > 0 {
		touch(filepath.Join(c.config.Dir, fmt.Sprintf("batch-%d-%d", os.Getpid(), time.Now().UnixNano())))
	}
	for i := range batch.Len() {
		results.Line(i, batch.Record(i))
	}
	return nil
}

// lane waits until one of the device's lanes is free.
func (c *crowd) lane() (*os.File, error) {
	for {
		for i := range c.config.Lanes {
			file, err := os.OpenFile(filepath.Join(c.config.Dir, "lane-"+strconv.Itoa(i)), os.O_CREATE|os.O_RDWR, 0o666)
			if err != nil {
				return nil, err
			}
			if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
				return file, nil
			}
			file.Close()
		}
		time.Sleep(200 * time.Microsecond)
	}
}
