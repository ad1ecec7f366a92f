package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/resources"
)

// Options replace the environment for tests. The zero value is the real one.
type Options struct {
	// NVML is the driver's library. Default: the real one, or, in a binary built
	// without cgo, one whose Init returns ErrNotBuilt.
	NVML API
	// Env looks up the variables of CUDA and Slurm. Default: os.LookupEnv.
	Env func(string) (string, bool)
	// CPUs is the number of cores. Without a driver, each becomes a CPU device.
	// Default: those that affinity and control groups allow.
	CPUs int
	// DriverPresent reports whether the NVIDIA driver is installed. It is called only
	// if NVML's library is missing. Default: looks for the driver's files.
	DriverPresent func() bool
	// PinUUID uses UUIDs as tokens (--pin uuid). Inherited tokens stay unchanged. It is
	// not the default because some frameworks only accept numbers.
	PinUUID bool
	// Slow is called once, with a line for the user and from another goroutine, if the driver
	// takes longer than SlowAfter (default 2 s) for an inventory. It may be nil.
	Slow      func(text string)
	SlowAfter time.Duration
	// Timeout bounds all NVML calls together. Default: 10 s. A healthy driver takes
	// about 10 ms, one without persistence mode a second or two per GPU.
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
		o.CPUs = resources.Cores()
	}
	if o.DriverPresent == nil {
		o.DriverPresent = driverPresent
	}
	o.Timeout, o.SlowAfter = cmp.Or(o.Timeout, 10*time.Second), cmp.Or(o.SlowAfter, 2*time.Second)
	return o
}

// scan takes the inventory and reports a slow driver.
func (o Options) scan(ctx context.Context) (machine, error) {
	if o.Slow != nil && o.SlowAfter < o.Timeout {
		defer time.AfterFunc(o.SlowAfter, func() {
			o.Slow(fmt.Sprintf("the NVIDIA driver has not answered for %v; waiting up to %v", o.SlowAfter, o.Timeout))
		}).Stop()
	}
	m, err := scan(ctx, o.NVML, o.Timeout)
	m.mps = findMPS(o.Env)
	return m, err
}

// driverPresent looks for the driver's files. The last one is for WSL, whose driver is
// part of Windows.
func driverPresent() bool {
	for _, path := range []string{"/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libnvidia-ml.so.1"} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// Inventory is the devices of the machine, or a selection of them. It has at least
// one device.
type Inventory struct {
	Devices []Device `json:"devices"`
	// Note is one line for the user about anything unexpected ("no NVIDIA driver:
	// using the CPU"); usually empty.
	Note          string `json:"note,omitempty"`
	DriverVersion string `json:"driver_version,omitempty"`
}

// Discover returns every GPU this process may use. Without an NVIDIA driver, and in a
// Slurm job that was given no GPUs, it returns a CPU device per core and a Note that says so.
//
// Errors are fault.NoDevice (a driver that fails or hangs, no usable GPU, a
// CUDA_VISIBLE_DEVICES that hides them all) or, if ctx ends, fault.Canceled.
func Discover(ctx context.Context, opts Options) (Inventory, error) {
	return Select(ctx, Selection{}, opts)
}

// Select returns the devices of a selection, in the order of the selection. An index
// counts the machine's GPUs in PCI order or, with an inherited CUDA_VISIBLE_DEVICES,
// the entries of that variable from 0, as CUDA does. cpu:N does not use NVML at all.
//
// A lost GPU is skipped and named in Note, as long as another one is usable. Select fails
// as Discover does, and with a fault.Usage for a device that does not exist, which lists
// what exists.
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
		return Inventory{}, fault.Driver.New("%s is loaded but shows no GPU: check nvidia-smi and, in a container, which devices it was given",
			strings.TrimSpace("the NVIDIA driver "+m.driver))
	}
	if withoutGPUs(opts.Env) {
		const remedy = "ask Slurm for GPUs, or set " + visibleVariable + " if it does not manage them"
		if !selection.IsAll() {
			return Inventory{}, fault.GPUsHidden.New("devices %s: this Slurm job has no GPUs: %s", selection, remedy)
		}
		return Inventory{Devices: cpuDevices(opts.CPUs), Note: "this Slurm job has no GPUs: using the CPU (" + remedy + ")"}, nil
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

// withoutNVML decides what the absence of NVML means: no GPUs, or GPUs that this
// binary cannot see.
func withoutNVML(selection Selection, opts Options, cause error) (Inventory, error) {
	notBuilt := errors.Is(cause, ErrNotBuilt)
	switch present := opts.DriverPresent(); {
	case present && notBuilt:
		return Inventory{}, fault.NoGPUSupport.New("%w: rebuild with cgo", cause)
	case present:
		return Inventory{}, fault.Driver.New("the NVIDIA driver is loaded, but %w: start the container with its GPUs (docker run --gpus all), or repair the driver's installation",
			cause)
	case len(selection.terms) > 0:
		return Inventory{}, fault.NoGPU.New("devices %s: this machine has no NVIDIA driver", selection)
	}
	return Inventory{Devices: cpuDevices(opts.CPUs), Note: "no NVIDIA driver: using the CPU"}, nil
}

// inventory keeps the usable devices of those picked, and notes the others.
func (m machine) inventory(picked []candidate, notes []string) (Inventory, error) {
	inv := Inventory{DriverVersion: m.driver}
	var unusable []candidate
	for _, g := range picked {
		if g.unusable != nil {
			unusable = append(unusable, g)
			continue
		}
		g.MPS = m.mps
		inv.Devices = append(inv.Devices, g.Device)
	}
	if len(inv.Devices) == 0 {
		return Inventory{}, fault.Driver.New("no usable GPU: %s; see dmesg and nvidia-smi", strings.Join(whyUnusable(unusable), "; "))
	}
	for _, g := range whyUnusable(unusable) {
		notes = append(notes, "skipping "+g)
	}
	inv.Note = strings.Join(notes, "; ")
	return inv, nil
}
