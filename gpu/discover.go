package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// cpuHint ends every error of a machine without a usable GPU.
const cpuHint = "`--gpus cpu:N` runs on the CPU"

// Options inject the world. The zero value is the real one.
type Options struct {
	// NVML is the driver's library. Default: the real one, or, in a binary that
	// was built without cgo, one whose Init says so.
	NVML API
	// Env looks up CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. Default: os.LookupEnv.
	Env func(string) (string, bool)
	// CPUs is the number of cores, half of which become CPU devices where there
	// is no driver. Default: runtime.NumCPU.
	CPUs int
	// DriverPresent says whether the NVIDIA driver is there. It is asked only
	// where NVML's library is not. Default: looks for the files a driver leaves.
	DriverPresent func() bool
	// PinUUID makes UUIDs the tokens (--pin uuid). Inherited tokens stay as
	// they are. Not the default: some frameworks read only numbers.
	PinUUID bool
	// Slow is called once, with a line for the user, if the driver takes longer than
	// SlowAfter (default 2 s) for an inventory. Nil: nobody is told.
	Slow      func(text string)
	SlowAfter time.Duration
	// Timeout bounds all NVML calls together. Default: 10 s; a healthy driver
	// takes some 10 ms, one without persistence mode a second or two a GPU.
	Timeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.NVML == nil {
		o.NVML = newNVML()
	}
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	if o.CPUs <= 0 {
		o.CPUs = runtime.NumCPU()
	}
	if o.DriverPresent == nil {
		o.DriverPresent = driverPresent
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.SlowAfter <= 0 {
		o.SlowAfter = 2 * time.Second
	}
	return o
}

// scan takes the inventory, and reports a driver that takes its time.
func (o Options) scan(ctx context.Context) (machine, error) {
	if o.Slow == nil || o.SlowAfter >= o.Timeout {
		return scan(ctx, o.NVML, o.Timeout)
	}
	var m machine
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		m, err = scan(ctx, o.NVML, o.Timeout)
	}()
	timer := time.NewTimer(o.SlowAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		o.Slow(fmt.Sprintf("the NVIDIA driver has not answered for %v; waiting for it for up to %v", o.SlowAfter, o.Timeout))
	case <-done:
	}
	<-done
	return m, err
}

// driverPresent looks for what a driver leaves in the file system. The last is
// WSL's: its driver lives in Windows.
func driverPresent() bool {
	for _, path := range []string{"/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libnvidia-ml.so.1"} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// Inventory is what the machine has, or what was selected of it. It holds at
// least one device.
type Inventory struct {
	Devices []Device `json:"devices"`
	// Note is one line for the user about what is not as expected ("no NVIDIA
	// driver: using 1 CPU worker"); mostly empty.
	Note          string `json:"note,omitempty"`
	DriverVersion string `json:"driver_version,omitempty"`
}

// Discover returns every GPU this process may use. Where there is no NVIDIA
// driver it returns max(1, cores/2) CPU devices and a Note that says so.
//
// Errors are fault.NoDevice (a driver that fails or hangs, no usable GPU, a
// CUDA_VISIBLE_DEVICES that hides them all) or, if ctx ends, fault.Canceled.
func Discover(ctx context.Context, opts Options) (Inventory, error) {
	return Select(ctx, Selection{}, opts)
}

// Select returns the devices of a selection, in the order of the selection. An
// index counts the machine's GPUs in PCI order or, under an inherited
// CUDA_VISIBLE_DEVICES, the entries of that variable from 0, as CUDA does.
// cpu:N does not touch NVML at all.
//
// A GPU that is lost is left out and named in Note, as long as another is left.
// Errors are those of Discover, and fault.Usage for a device that does not
// exist, with what there is in its place.
func Select(ctx context.Context, selection Selection, opts Options) (Inventory, error) {
	opts = opts.withDefaults()
	if selection.cpus > 0 {
		return Inventory{Devices: cpuDevices(selection.cpus)}, nil
	}
	m, err := opts.scan(ctx)
	if errors.Is(err, ErrNoLibrary) || errors.Is(err, ErrNotBuilt) {
		return withoutNVML(selection, opts, err)
	}
	if err != nil {
		return Inventory{}, err
	}
	if len(m.gpus) == 0 {
		return Inventory{}, fault.New(fault.NoDevice,
			"%s is there, but it shows no GPU: see nvidia-smi and, in a container, what it was given; %s",
			strings.TrimSpace("the NVIDIA driver "+m.driver), cpuHint)
	}
	v, err := m.visible(opts)
	if err != nil {
		return Inventory{}, err
	}
	picked, err := selection.pick(v)
	if err != nil {
		return Inventory{}, err
	}
	return m.inventory(picked, v.notes)
}

// withoutNVML decides what a machine without NVML means: no GPUs, or GPUs that
// this binary cannot see.
func withoutNVML(selection Selection, opts Options, cause error) (Inventory, error) {
	notBuilt := errors.Is(cause, ErrNotBuilt)
	switch present := opts.DriverPresent(); {
	case present && notBuilt:
		return Inventory{}, fault.New(fault.NoDevice, "%w: rebuild with cgo, or use `--gpus cpu:N`", cause)
	case present:
		return Inventory{}, fault.New(fault.NoDevice,
			"the NVIDIA driver is loaded, but %w: start the container with its GPUs (docker run --gpus all), or repair the driver's installation; %s",
			cause, cpuHint)
	case len(selection.terms) > 0:
		return Inventory{}, fault.New(fault.NoDevice, "--gpus %s: this machine has no NVIDIA driver; %s", selection, cpuHint)
	}
	n := max(1, opts.CPUs/2)
	note := fmt.Sprintf("no NVIDIA driver: using %d CPU workers", n)
	if n == 1 {
		note = "no NVIDIA driver: using 1 CPU worker"
	}
	return Inventory{Devices: cpuDevices(n), Note: note}, nil
}

// inventory keeps what can be used of the picked ones, and says what cannot.
func (m machine) inventory(picked []candidate, notes []string) (Inventory, error) {
	inv := Inventory{DriverVersion: m.driver}
	var gone []candidate
	for _, g := range picked {
		if g.gone != nil {
			gone = append(gone, g)
			continue
		}
		inv.Devices = append(inv.Devices, g.Device)
	}
	if len(inv.Devices) == 0 {
		return Inventory{}, fault.New(fault.NoDevice, "no usable GPU: %s; see dmesg and nvidia-smi; %s", strings.Join(whyGone(gone), "; "), cpuHint)
	}
	for _, g := range whyGone(gone) {
		notes = append(notes, "left out "+g)
	}
	inv.Note = strings.Join(notes, "; ")
	return inv, nil
}
