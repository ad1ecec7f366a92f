package gpu

import (
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// Kind says what sort of device it is.
type Kind string

const (
	// GPU is an NVIDIA GPU, or a MIG instance of one.
	GPU Kind = "gpu"
	// CPU is a share of the machine's cores: a worker that sees no GPU.
	CPU Kind = "cpu"
)

// Device is one thing a worker can be pinned to. Every field but Kind, Index,
// Name and (for a GPU) Token is optional: its zero value means "not known",
// never "none".
type Device struct {
	Kind Kind `json:"kind"`
	// Index is the position in the machine: for a GPU that of NVML and
	// nvidia-smi (PCI order), for a CPU device 0..N-1, for a MIG instance that on
	// its parent, or, where that is not known, its place among those that were
	// named.
	Index int    `json:"index"`
	UUID  string `json:"uuid,omitempty"` // "GPU-…", "MIG-…"
	Name  string `json:"name"`           // "NVIDIA H200", "NVIDIA H200 MIG 1g.18gb", "CPU"
	// Parent is the GPU that a MIG instance is part of: it has the temperature
	// and the power. Nil for everything else.
	Parent *Parent `json:"parent,omitempty"`
	// Token is what goes into CUDA_VISIBLE_DEVICES for this device. It is empty
	// for a CPU device: its worker sees no GPU.
	Token string `json:"token"`
	// PCIOrder says that Token is an index that gpurun chose itself. It means
	// this device only with CUDA_DEVICE_ORDER=PCI_BUS_ID: CUDA's default order
	// is fastest first. PinEnv sets it.
	PCIOrder bool `json:"pci_order,omitempty"`
	// Ambiguous says why Token does not tell which GPU of the machine it means, and
	// what the user can set so that it does; empty for a token that is clear. Without
	// that, nobody else can be told which GPU is in use.
	Ambiguous  string `json:"ambiguous,omitempty"`
	PCIBusID   string `json:"pci_bus_id,omitempty"` // "00000000:18:00.0"
	Memory     uint64 `json:"memory_bytes"`         // in all
	MemoryFree uint64 `json:"memory_free_bytes"`    // at the time of the inventory
	CPUs       []int  `json:"cpus,omitempty"`       // the CPUs near this GPU; may reach beyond those this process may use
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

// isOn reports whether the device is the GPU with this index and UUID, or part of
// it. Without a UUID an index means a GPU only where it is our own.
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

// migDevice is a MIG instance known by its name alone. Others know the instance by
// its UUID, of which a prefix or an older name tells too little.
func migDevice(token string, index int) Device {
	d := Device{Kind: GPU, Index: index, UUID: token, Name: "MIG", Token: token}
	if !isUUID(strings.TrimPrefix(token, "MIG-")) {
		d.Ambiguous = fmt.Sprintf("the driver lists no MIG instance, so %s cannot be looked up; write its whole UUID (nvidia-smi -L lists them)", token)
	}
	return d
}

// isUUID reports whether s is a whole UUID, as NVML writes one.
func isUUID(s string) bool {
	const form = "00000000-0000-0000-0000-000000000000"
	if len(s) != len(form) || strings.Trim(s, "0123456789abcdef-") != "" {
		return false
	}
	for i := range form {
		if (form[i] == '-') != (s[i] == '-') {
			return false
		}
	}
	return true
}

func cpuDevices(n int) []Device {
	devices := make([]Device, n)
	for i := range devices {
		devices[i] = Device{Kind: CPU, Index: i, Name: "CPU"}
	}
	return devices
}

// Group cuts devices into consecutive groups of n, one group for each worker
// (--gpus-per-worker). A remainder is an error: a GPU left idle without a word
// is not what anybody asked for. So is a group with a MIG instance: CUDA shows a
// process one of them, and nothing else.
func Group(devices []Device, n int) ([][]Device, error) {
	if n < 1 {
		return nil, fault.New(fault.Usage, "--gpus-per-worker is %d: it must be at least 1", n)
	}
	if len(devices)%n != 0 {
		return nil, fault.New(fault.Usage,
			"%d devices cannot be shared out in groups of %d (--gpus-per-worker): %d would be left over; choose a multiple of %d with --gpus",
			len(devices), n, len(devices)%n, n)
	}
	groups := make([][]Device, 0, len(devices)/n)
	for start := 0; start < len(devices); start += n {
		for _, d := range devices[start : start+n] {
			if n > 1 && isMIG(d.Token) {
				return nil, fault.New(fault.Usage,
					"%s (%s) cannot serve a worker together with others (--gpus-per-worker %d): CUDA shows a process one MIG instance and nothing else; choose whole GPUs with --gpus",
					d, d.Token, n)
			}
		}
		// The capacity ends with the group: an append to one must not write
		// into the next.
		groups = append(groups, devices[start:start+n:start+n])
	}
	return groups, nil
}

// PinEnv returns the environment variables ("KEY=value") that pin a worker to
// these devices. They replace those of the same name in the worker's
// environment; CUDA_DEVICE_ORDER is among them only if a token needs it, since
// an inherited token must be read under the order it was written for. CPU
// devices, and no device at all, give an empty CUDA_VISIBLE_DEVICES, which
// hides every GPU.
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
