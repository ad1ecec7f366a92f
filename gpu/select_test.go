package gpu

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

func mustParse(t *testing.T, s string) Selection {
	t.Helper()
	sel, err := ParseSelection(s)
	if err != nil {
		t.Fatal(err)
	}
	return sel
}

func TestSelect(t *testing.T) {
	for name, test := range map[string]struct {
		gpus string
		env  []string
		want string // tokens
	}{
		"all":                       {gpus: "all", want: "0,1,2,3"},
		"one":                       {gpus: "2", want: "2"},
		"order is kept":             {gpus: "3,0-1", want: "3,0,1"},
		"a UUID becomes its index":  {gpus: "GPU-1a", want: "1"},
		"a UUID in capitals":        {gpus: "GPU-1AAA", want: "1"},
		"a whole UUID":              {gpus: fakeUUID(3), want: "3"},
		"a mixture":                 {gpus: "GPU-3a,0", want: "3,0"},
		"MIG by name":               {gpus: "MIG-ab,1", want: "MIG-ab,1"},
		"positions among inherited": {gpus: "0,2", env: []string{"CUDA_VISIBLE_DEVICES=1,0,3"}, want: "1,3"},
		"UUID among inherited":      {gpus: "GPU-3a", env: []string{"CUDA_VISIBLE_DEVICES=1,3"}, want: "3"},
		"inherited UUIDs":           {gpus: "1", env: []string{"CUDA_VISIBLE_DEVICES=GPU-2,GPU-0aa"}, want: "GPU-0aa"},
		"inherited MIG":             {gpus: "MIG-b", env: []string{"CUDA_VISIBLE_DEVICES=MIG-a,MIG-b"}, want: "MIG-b"},
		"inherited MIG by position": {gpus: "1", env: []string{"CUDA_VISIBLE_DEVICES=MIG-a,MIG-b"}, want: "MIG-b"},
	} {
		t.Run(name, func(t *testing.T) {
			inv, err := Select(t.Context(), mustParse(t, test.gpus), options(newFake(t, same(4)...), test.env...))
			if err != nil || tokens(inv) != test.want || inv.Note != "" {
				t.Errorf("got %s (%s), %v, want %s", tokens(inv), inv.Note, err, test.want)
			}
		})
	}
}

func TestSelectErrors(t *testing.T) {
	for name, test := range map[string]struct {
		gpus string
		env  []string
		kind fault.Kind
		want string
	}{
		"too high":         {gpus: "9", kind: fault.Usage, want: "GPU 9 does not exist: this machine has 2 GPUs (0-1)"},
		"range too high":   {gpus: "0-3", kind: fault.Usage, want: "GPU 2 does not exist: this machine has 2 GPUs (0-1)"},
		"huge range":       {gpus: "1-999999999999", kind: fault.Usage, want: "GPU 2 does not exist"},
		"a number":         {gpus: "2", kind: fault.Usage, want: "GPU 2 does not exist: this machine has 2 GPUs (0-1); an index is not a number of GPUs: to use all 2, select all"},
		"a typo":           {gpus: strings.Replace(fakeUUID(1), "8000", "8001", 1), kind: fault.Usage, want: "did you mean " + fakeUUID(1) + "?"},
		"no instance":      {gpus: "0:1", kind: fault.Usage, want: "GPU 0 is not in MIG mode, so there is no instance 0:1 (for GPUs 0 and 1 write 0,1)"},
		"unknown UUID":     {gpus: "GPU-ff", kind: fault.Usage, want: "no GPU has the UUID GPU-ff: this machine has 2 GPUs (0-1), 0 is GPU-0aaa"},
		"ambiguous UUID":   {gpus: "GPU-", kind: fault.Usage, want: "is a prefix of 2 UUIDs"},
		"same GPU twice":   {gpus: "1,GPU-1a", kind: fault.Usage, want: "1 and GPU-1a are the same GPU"},
		"not visible":      {gpus: "1", env: []string{"CUDA_VISIBLE_DEVICES=1"}, kind: fault.Usage, want: "GPU 1 does not exist: CUDA_VISIBLE_DEVICES=1 leaves 1 to choose from (0,"},
		"UUID not visible": {gpus: "GPU-0a", env: []string{"CUDA_VISIBLE_DEVICES=1"}, kind: fault.Usage, want: "no GPU has the UUID GPU-0a: CUDA_VISIBLE_DEVICES=1 leaves 1"},
		"MIG not visible":  {gpus: "MIG-ab", env: []string{"CUDA_VISIBLE_DEVICES=MIG-cd"}, kind: fault.Usage, want: "no MIG instance has the name MIG-ab: CUDA_VISIBLE_DEVICES=MIG-cd leaves 1"},
		"hidden":           {gpus: "0", env: []string{"CUDA_VISIBLE_DEVICES="}, kind: fault.NoDevice, want: "is set but empty"},
	} {
		t.Run(name, func(t *testing.T) {
			sel := Selection{terms: []term{{name: "GPU-"}}} // ParseSelection would reject it
			if test.gpus != "GPU-" {
				sel = mustParse(t, test.gpus)
			}
			_, err := Select(t.Context(), sel, options(newFake(t, same(2)...), test.env...))
			wantFault(t, err, test.kind, test.want)
		})
	}
}

func TestSelectWithoutDriver(t *testing.T) {
	m := newFake(t)
	m.initErr = ErrNoLibrary
	_, err := Select(t.Context(), mustParse(t, "0"), options(m))
	wantFault(t, err, fault.NoDevice, "devices 0: this machine has no NVIDIA driver")
}

func TestSelectCPUsDoesNotTouchNVML(t *testing.T) {
	m := newFake(t, same(2)...)
	inv, err := Select(t.Context(), mustParse(t, "cpu:3"), options(m, "CUDA_VISIBLE_DEVICES=0"))
	if err != nil || len(inv.Devices) != 3 || inv.Devices[2].String() != "CPU 2" || inv.Note != "" {
		t.Errorf("%+v, %v", inv, err)
	}
	if calls := m.called(); len(calls) != 0 {
		t.Errorf("NVML was called: %v", calls)
	}
}

func TestSelectLost(t *testing.T) {
	m := newFake(t, same(3)...)
	m.gpus[1].lost = true
	inv, err := Select(t.Context(), mustParse(t, "1,2"), options(m))
	if err != nil || len(inv.Devices) != 1 || inv.Devices[0].Index != 2 {
		t.Errorf("one of two is left: %+v, %v", inv, err)
	}
	m = newFake(t, same(3)...)
	m.gpus[1].lost = true
	_, err = Select(t.Context(), mustParse(t, "1"), options(m))
	wantFault(t, err, fault.NoDevice, "no usable GPU: GPU 1: the GPU is lost")
}
