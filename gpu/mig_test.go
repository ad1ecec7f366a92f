package gpu_test

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/internal/fault"
)

const (
	firstMIG  = "MIG-00000005-0000-4000-8000-000000000000"
	secondMIG = "MIG-00000005-0001-4000-8000-000000000000"
	wholeGPU  = "GPU-00000000-0000-4000-8000-000000000000"
)

func selectFrom(t *testing.T, machine *gputest.Machine, gpus, visible string) (gpu.Inventory, error) {
	t.Helper()
	selection, err := gpu.ParseSelection(gpus)
	if err != nil {
		t.Fatal(err)
	}
	environment := gputest.NoEnv
	if visible != "" {
		environment = func(name string) (string, bool) { return visible, name == "CUDA_VISIBLE_DEVICES" }
	}
	return gpu.Select(t.Context(), selection, gpu.Options{NVML: machine, Env: environment})
}

func names(inventory gpu.Inventory) string {
	var list []string
	for _, d := range inventory.Devices {
		list = append(list, d.String())
	}
	return strings.Join(list, " ")
}

func TestMIGInstancesAreDevices(t *testing.T) {
	for name, test := range map[string]struct {
		gpus, visible string
		want          string
		note          string
	}{
		"all":                   {gpus: "all", want: "GPU 0 GPU 1 GPU 2 GPU 3 GPU 4 MIG 5:0 MIG 5:1 GPU 6 GPU 7", note: "pinned by UUID, because a GPU of this machine is in MIG mode"},
		"by UUID":               {gpus: secondMIG, want: "MIG 5:1", note: "pinned"},
		"by prefix":             {gpus: "MIG-00000005-0001", want: "MIG 5:1", note: "pinned"},
		"by older name":         {gpus: "MIG-GPU-00000005-0000-4000-8000-000000000000/8/0", want: "MIG 5:1", note: "pinned"},
		"by place":              {gpus: "5:1,0", want: "MIG 5:1 GPU 0", note: "pinned"},
		"the GPU's number":      {gpus: "5", want: "MIG 5:0 MIG 5:1", note: "pinned"},
		"the GPU's UUID":        {gpus: "GPU-00000005", want: "MIG 5:0 MIG 5:1", note: "pinned"},
		"across":                {gpus: "4-6", want: "GPU 4 MIG 5:0 MIG 5:1 GPU 6", note: "pinned"},
		"inherited":             {gpus: "all", visible: secondMIG, want: "MIG 5:1"},
		"inherited prefix":      {gpus: "all", visible: "MIG-00000005-0000," + secondMIG, want: "MIG 5:0 MIG 5:1"},
		"inherited, older":      {gpus: "all", visible: "MIG-GPU-00000005-0000-4000-8000-000000000000/7/0", want: "MIG 5:0"},
		"inherited, a position": {gpus: "1", visible: firstMIG + "," + secondMIG, want: "MIG 5:1"},
		"inherited, unknown":    {gpus: "all", visible: firstMIG + ",MIG-abc", want: "MIG 5:0", note: `read up to "MIG-abc", which matches no GPU`},
		"inherited index":       {gpus: "all", visible: "0", want: "GPU 0", note: "is unclear, because a GPU of this machine is in MIG mode"},
	} {
		t.Run(name, func(t *testing.T) {
			inventory, err := selectFrom(t, gputest.EightGPUs(), test.gpus, test.visible)
			if err != nil || names(inventory) != test.want || !strings.Contains(inventory.Note, test.note) || test.note == "" && inventory.Note != "" {
				t.Errorf("%s (%s), %v, want %s", names(inventory), inventory.Note, err, test.want)
			}
		})
	}
}

func TestMIGInstanceDescribesItself(t *testing.T) {
	inventory, err := selectFrom(t, gputest.EightGPUs(), firstMIG+",0", "")
	if err != nil {
		t.Fatal(err)
	}
	d := inventory.Devices[0]
	if d.UUID != firstMIG || d.Token != firstMIG || d.PCIOrder || d.Name != "NVIDIA H200 MIG 1g" || d.Memory != 40*gputest.GiB ||
		d.Parent == nil || d.Parent.Index != gputest.Split || !strings.HasPrefix(d.Parent.UUID, "GPU-00000005") {
		t.Errorf("got %+v of %+v", d, d.Parent)
	}
	if inventory.Devices[1].Token != wholeGPU {
		t.Errorf("a whole GPU next to it is pinned by %s", inventory.Devices[1].Token)
	}
	if _, err := gpu.Group(inventory.Devices[:2], 2); fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), "only one MIG instance and no other device") {
		t.Errorf("two in one worker: %v", err)
	}
}

func TestMIGErrors(t *testing.T) {
	for name, test := range map[string]struct {
		gpus, visible string
		change        func(*gputest.Card)
		want          string
	}{
		"unknown":      {gpus: "MIG-abc", want: "no MIG instance has the name MIG-abc: this machine has 8 GPUs (0-7)"},
		"no such part": {gpus: "5:2", want: "GPU 5 has no MIG instance 2: it has 5:0 and 5:1"},
		"not in MIG":   {gpus: "4:0", want: "GPU 4 is not in MIG mode"},
		"by place":     {gpus: "5:0", visible: secondMIG, want: "names a MIG instance by its index in the machine, but CUDA_VISIBLE_DEVICES="},
		"ambiguous":    {gpus: "MIG-0000", want: "is a prefix of 2 UUIDs"},
		"twice":        {gpus: "5," + firstMIG, want: "are the same GPU"},
		"no instance":  {gpus: "5", change: func(c *gputest.Card) { c.Instances = nil }, want: "GPU 5 is in MIG mode and has no instance: create instances (nvidia-smi mig -cgi"},
		"hidden twice": {gpus: "all", visible: firstMIG + ",MIG-00000005-0000", want: "names a GPU twice"},
	} {
		t.Run(name, func(t *testing.T) {
			machine := gputest.EightGPUs()
			if test.change != nil {
				machine.Change(gputest.Split, test.change)
			}
			_, err := selectFrom(t, machine, test.gpus, test.visible)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// When a parent is lost, its instances are reported lost.
func TestMIGInstanceIsToldOfItsParent(t *testing.T) {
	machine := gputest.EightGPUs()
	inventory, err := selectFrom(t, machine, "5,0", "")
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan gpu.XidEvent, 4)
	go func() {
		_ = gpu.WatchXids(t.Context(), inventory.Devices, gpu.Options{NVML: machine, Env: gputest.NoEnv}, func(e gpu.XidEvent) { events <- e })
	}()
	machine.RaiseXid(gputest.Split, 79)
	for _, want := range []string{"MIG 5:0: Xid 79 (fallen off the bus)", "MIG 5:1: Xid 79 (fallen off the bus)"} {
		if got := (<-events).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
