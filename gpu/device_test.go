package gpu

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

func TestDeviceString(t *testing.T) {
	for want, d := range map[string]Device{
		"GPU 0":   {Kind: GPU, Token: "0"},
		"GPU 4":   {Kind: GPU, Index: 4, Token: "GPU-abc"},
		"CPU 1":   {Kind: CPU, Index: 1},
		"MIG 2":   migDevice("MIG-abc", 2),
		"MIG 3:1": {Kind: GPU, Index: 1, Token: "MIG-abc", Parent: &Parent{Index: 3}},
	} {
		if got := d.String(); got != want {
			t.Errorf("%+v: %q, want %q", d, got, want)
		}
	}
}

func TestGroup(t *testing.T) {
	devices := cpuDevices(6)
	groups, err := Group(devices, 2)
	if err != nil || len(groups) != 3 || groups[1][0].Index != 2 || groups[1][1].Index != 3 {
		t.Fatalf("Group(6, 2) = %v, %v", groups, err)
	}
	_ = append(groups[0], Device{Index: 99})
	if groups[1][0].Index != 2 {
		t.Error("an append to one group wrote into the next")
	}
	if groups, err := Group(nil, 2); err != nil || len(groups) != 0 {
		t.Errorf("Group(nil, 2) = %v, %v", groups, err)
	}
	_, err = Group([]Device{migDevice("MIG-a", 0), {Kind: GPU, Index: 1, Token: "1"}}, 2)
	if fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), "MIG 0 (MIG-a) cannot share a worker with other devices") {
		t.Errorf("a MIG instance and a GPU together: %v", err)
	}
	for n, want := range map[int]string{0: "not 0", -1: "not -1", 4: "6 devices cannot be split into groups of 4", 7: "6 would be left over"} {
		_, err := Group(devices, n)
		if fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("Group(6, %d): %v, want a usage error with %q", n, err, want)
		}
	}
}

func TestPinEnv(t *testing.T) {
	own := func(i int, token string) Device { return Device{Kind: GPU, Index: i, Token: token, PCIOrder: true} }
	inherited := func(token string) Device { return Device{Kind: GPU, Token: token} }
	for name, test := range map[string]struct {
		group []Device
		want  []string
	}{
		"one index":         {[]Device{own(3, "3")}, []string{"CUDA_VISIBLE_DEVICES=3", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}},
		"two":               {[]Device{own(2, "2"), own(3, "3")}, []string{"CUDA_VISIBLE_DEVICES=2,3", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}},
		"inherited":         {[]Device{inherited("4"), inherited("6")}, []string{"CUDA_VISIBLE_DEVICES=4,6"}},
		"uuid":              {[]Device{inherited("GPU-ab")}, []string{"CUDA_VISIBLE_DEVICES=GPU-ab"}},
		"MIG":               {[]Device{migDevice("MIG-ab", 0)}, []string{"CUDA_VISIBLE_DEVICES=MIG-ab"}},
		"CPU":               {cpuDevices(2), []string{"CUDA_VISIBLE_DEVICES="}},
		"nothing":           {nil, []string{"CUDA_VISIBLE_DEVICES="}},
		"zero is not empty": {[]Device{own(0, "0")}, []string{"CUDA_VISIBLE_DEVICES=0", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}},
	} {
		if got := PinEnv(test.group); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
