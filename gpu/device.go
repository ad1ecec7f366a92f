package gpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
)

// Kind is the type of a device.
type Kind string

const (
	// GPU is an NVIDIA GPU, or a MIG instance of one.
	GPU Kind = "gpu"
	// CPU is a share of the machine's cores: a worker that sees no GPU.
	CPU Kind = "cpu"
)

// Device is something a worker can be pinned to. Every field but Kind, Index, Name
// and (for a GPU) Token is optional: its zero value means "unknown", never "none".
type Device struct {
	Kind Kind `json:"kind"`
	// Index is the position in the machine: for a GPU the index in NVML and nvidia-smi
	// (PCI order), for a CPU device 0..N-1, for a MIG instance its index on its
	// parent or, if that is unknown, its position in the selection.
	Index int    `json:"index"`
	UUID  string `json:"uuid,omitempty"` // "GPU-…", "MIG-…"
	Name  string `json:"name"`           // "NVIDIA H200", "NVIDIA H200 MIG 1g.18gb", "CPU"
	// Parent is the GPU that a MIG instance is part of, which has the temperature and
	// power sensors. Nil for other devices.
	Parent *Parent `json:"parent,omitempty"`
	// Token is this device's entry in CUDA_VISIBLE_DEVICES. It is empty for a CPU
	// device, whose worker sees no GPU.
	Token string `json:"token"`
	// PCIOrder means that Token is an index that gpurun chose. It identifies this
	// device only with CUDA_DEVICE_ORDER=PCI_BUS_ID, which PinEnv sets: CUDA's
	// default order is fastest first.
	PCIOrder bool `json:"pci_order,omitempty"`
	// Ambiguous is why Token does not identify a GPU of the machine, and what the user
	// can set to fix that; empty for an unambiguous token. An ambiguous device cannot
	// be leased, because other processes cannot tell which GPU is in use.
	Ambiguous string `json:"ambiguous,omitempty"`
	// MPS is the pipe folder of CUDA's multi-process service, if it is running: a fault of
	// one process on the device then ends all of them.
	MPS        string `json:"mps,omitempty"`
	PCIBusID   string `json:"pci_bus_id,omitempty"` // "00000000:18:00.0"
	Memory     uint64 `json:"memory_bytes"`         // total
	MemoryFree uint64 `json:"memory_free_bytes"`    // at the time of the inventory
	CPUs       []int  `json:"cpus,omitempty"`       // the CPUs near this GPU; may include CPUs this process may not use
}

// Parent is the GPU of a MIG instance.
type Parent struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid,omitempty"`
}

// String returns the label of bars and logs: "GPU 0", "MIG 3:0" (the first
// instance of GPU 3), "CPU 0". It is the device's name within one inventory.
func (d Device) String() string {
	switch {
	case d.Kind == CPU:
		return fmt.Sprintf("CPU %d", d.Index)
	case d.Parent != nil:
		return fmt.Sprintf("MIG %d:%d", d.Parent.Index, d.Index)
	case isMIG(d.Token):
		return fmt.Sprintf("MIG %d", d.Index)
	default:
		return fmt.Sprintf("GPU %d", d.Index)
	}
}

// Is reports whether both are one device of an inventory.
func (d Device) Is(other Device) bool { return d.String() == other.String() }

// ID identifies the device among all devices of its kind on the machine, as users name it: "0",
// "3:0" (the first instance of GPU 3). An instance whose GPU is unknown has only its UUID.
func (d Device) ID() string {
	switch {
	case d.Parent != nil:
		return fmt.Sprintf("%d:%d", d.Parent.Index, d.Index)
	case isMIG(d.Token):
		return d.UUID
	}
	return strconv.Itoa(d.Index)
}

// home is the index of its GPU: its own, or its parent's.
func (d Device) home() int {
	if d.Parent != nil {
		return d.Parent.Index
	}
	return d.Index
}

// isOn reports whether the device is the GPU with this index and UUID, or part of
// it. Without a UUID, an index identifies a GPU only if gpurun chose it.
func (d Device) isOn(index int, uuid string) bool {
	switch {
	case d.Parent != nil:
		return d.Parent.UUID != "" && d.Parent.UUID == uuid || d.Parent.UUID == "" && d.Parent.Index == index
	case d.UUID != "":
		return d.UUID == uuid
	default:
		return d.PCIOrder && d.Index == index
	}
}

func isMIG(token string) bool { return strings.HasPrefix(token, "MIG-") }

// migDevice is a MIG instance known only by its name. Other processes identify an
// instance by its UUID, so a prefix or a name in the old format is ambiguous.
func migDevice(token string, index int) Device {
	d := Device{Kind: GPU, Index: index, UUID: token, Name: "MIG", Token: token}
	if !wholeUUID().MatchString(strings.TrimPrefix(token, "MIG-")) {
		d.Ambiguous = fmt.Sprintf("the driver lists no MIG instance, so %s cannot be looked up; write its whole UUID (nvidia-smi -L lists them)", token)
	}
	return d
}

// wholeUUID matches a complete UUID as NVML writes it.
var wholeUUID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`) })

func cpuDevices(n int) []Device {
	devices := make([]Device, n)
	for i := range devices {
		devices[i] = Device{Kind: CPU, Index: i, Name: "CPU"}
	}
	return devices
}

// Group splits devices into consecutive groups of n, one per worker. A remainder is an error, since it would silently leave GPUs
// idle. So is a group of several with a MIG instance: CUDA shows a process only one
// instance and no other device.
func Group(devices []Device, n int) ([][]Device, error) {
	if n < 1 {
		return nil, fault.TooSmall.New("a worker needs at least 1 GPU, not %d", n).Set("gpus-per-worker")
	}
	if len(devices)%n != 0 {
		return nil, fault.UnevenDevices.New("%d devices cannot be split into groups of %d: %d would be left over; choose a multiple of %d",
			len(devices), n, len(devices)%n, n).Set("gpus-per-worker")
	}
	groups := make([][]Device, 0, len(devices)/n)
	for start := 0; start < len(devices); start += n {
		for _, d := range devices[start : start+n] {
			if n > 1 && isMIG(d.Token) {
				return nil, fault.MIG.New("%s (%s) cannot share a worker with other devices: CUDA shows a process only one MIG instance and no other device; choose whole GPUs, or one device per worker instead of %d",
					d, d.Token, n).Set("gpus-per-worker")
			}
		}
		// Limit the capacity to the group: an append must not write into the next one.
		groups = append(groups, devices[start:start+n:start+n])
	}
	return groups, nil
}

// PinEnv returns the environment variables ("KEY=value") that pin a worker to these
// devices. They replace variables of the same name in the worker's environment.
// CUDA_DEVICE_ORDER is included only if a token needs it, since an inherited token
// must be interpreted in the order it was written for. For CPU devices, or none,
// CUDA_VISIBLE_DEVICES is empty, which hides every GPU.
func PinEnv(group []Device) []string {
	tokens := make([]string, 0, len(group))
	ordered := false
	for _, d := range group {
		if d.Token != "" {
			tokens = append(tokens, d.Token)
			ordered = ordered || d.PCIOrder
		}
	}
	env := []string{visibleVariable + "=" + strings.Join(tokens, ",")}
	if ordered {
		env = append(env, orderVariable+"="+pciOrder)
	}
	return env
}
