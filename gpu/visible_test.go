package gpu

import (
	"strings"
	"testing"
)

func TestInheritedVariable(t *testing.T) {
	const pci = "CUDA_DEVICE_ORDER=PCI_BUS_ID"
	mixed := []string{"NVIDIA T4", "NVIDIA H200", "NVIDIA H200", "NVIDIA T4"}
	for name, test := range map[string]struct {
		models []string // default: four of one
		env    []string
		want   string // tokens
		labels string // default: not checked
		known  bool   // UUIDs and the rest are known
		note   string
	}{
		"tokens stay":           {env: []string{"CUDA_VISIBLE_DEVICES=2,0"}, want: "2,0", labels: "GPU 2,GPU 0", known: true},
		"blanks":                {env: []string{"CUDA_VISIBLE_DEVICES=2, 0"}, want: "2,0", known: true},
		"UUID prefix":           {env: []string{"CUDA_VISIBLE_DEVICES=GPU-3aa"}, want: "GPU-3aa", labels: "GPU 3", known: true},
		"stops at a UUID":       {env: []string{"CUDA_VISIBLE_DEVICES=0,GPU-3a,1"}, want: "0", known: true, note: `read up to "GPU-3a": CUDA does not accept`},
		"stops at an index":     {env: []string{"CUDA_VISIBLE_DEVICES=GPU-3a,0"}, want: "GPU-3a", known: true, note: `read up to "0": CUDA does not accept`},
		"comma at the end":      {env: []string{"CUDA_VISIBLE_DEVICES=1,"}, want: "1", known: true},
		"stops at two numbers":  {env: []string{"CUDA_VISIBLE_DEVICES=1,2 3"}, want: "1", known: true, note: `read up to "2 3"`},
		"MIG":                   {env: []string{"CUDA_VISIBLE_DEVICES=MIG-a,MIG-b"}, want: "MIG-a,MIG-b", labels: "MIG 0,MIG 1", known: true},
		"stops at -1":           {env: []string{"CUDA_VISIBLE_DEVICES=1,-1,2"}, want: "1", known: true, note: `read up to "-1"`},
		"stops out of range":    {env: []string{"CUDA_VISIBLE_DEVICES=1,4,2"}, want: "1", known: true, note: `read up to "4"`},
		"stops at garbage":      {env: []string{"CUDA_VISIBLE_DEVICES=1,x,2"}, want: "1", known: true, note: `read up to "x"`},
		"stops at an ambiguity": {env: []string{"CUDA_VISIBLE_DEVICES=1,GPU-,2"}, want: "1", known: true, note: `read up to "GPU-"`},
		"stops at nothing":      {env: []string{"CUDA_VISIBLE_DEVICES=1,,2"}, want: "1", known: true, note: `read up to ""`},
		"twice, but not read":   {env: []string{"CUDA_VISIBLE_DEVICES=1,-1,1"}, want: "1", known: true, note: `read up to`},
		"models differ":         {models: mixed, env: []string{"CUDA_VISIBLE_DEVICES=1,0"}, want: "1,0", labels: "GPU 1,GPU 0", note: "different models by its own rule: set CUDA_DEVICE_ORDER=PCI_BUS_ID"},
		"models differ, by PCI": {models: mixed, env: []string{"CUDA_VISIBLE_DEVICES=1,0", pci}, want: "1,0", known: true},
		"models differ, UUIDs":  {models: mixed, env: []string{"CUDA_VISIBLE_DEVICES=GPU-1"}, want: "GPU-1", known: true},
		"models differ, other order": {models: mixed, env: []string{"CUDA_VISIBLE_DEVICES=1", "CUDA_DEVICE_ORDER=FASTEST_FIRST"},
			want: "1", note: "is unclear"},
	} {
		t.Run(name, func(t *testing.T) {
			models := test.models
			if models == nil {
				models = same(4)
			}
			opts := options(newFake(t, models...), test.env...)
			opts.PinUUID = true // does not touch what is inherited
			inv, err := Discover(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			if tokens(inv) != test.want {
				t.Errorf("tokens %s, want %s", tokens(inv), test.want)
			}
			var labels []string
			for _, d := range inv.Devices {
				labels = append(labels, d.String())
				if d.PCIOrder {
					t.Errorf("%v: CUDA_DEVICE_ORDER would be set for an inherited token", d)
				}
				if known := d.UUID != ""; known != test.known {
					t.Errorf("%v: UUID known is %v, want %v: %+v", d, known, test.known, d)
				}
				if !test.known && (d.CPUs != nil || d.Memory != 0 || d.PCIBusID != "" || d.Name != unknownName) {
					t.Errorf("%v claims to know what it cannot: %+v", d, d)
				}
			}
			if test.labels != "" && strings.Join(labels, ",") != test.labels {
				t.Errorf("labels %v, want %s", labels, test.labels)
			}
			if (test.note == "") != (inv.Note == "") || !strings.Contains(inv.Note, test.note) {
				t.Errorf("note %q, want %q", inv.Note, test.note)
			}
		})
	}
}

func TestInheritedVariableNamesOneTwice(t *testing.T) {
	for value, twice := range map[string]bool{
		"1,1": true, "1,01": true, "GPU-1,GPU-1a": true, "GPU-1a,GPU-1A": true, "MIG-a,MIG-a": true,
		"1,2": false, "1,GPU-1a": false, "1,9,1": false, "MIG-a,MIG-b": false,
	} {
		_, err := Discover(t.Context(), options(newFake(t, same(4)...), "CUDA_VISIBLE_DEVICES="+value))
		if got := err != nil && strings.Contains(err.Error(), "names a GPU twice"); got != twice {
			t.Errorf("%s: %v, want twice = %v", value, err, twice)
		}
	}
}

// If a GPU does not answer, CUDA's numbering is unknown.
func TestInheritedVariableWithLostGPU(t *testing.T) {
	m := newFake(t, same(3)...)
	m.gpus[1].lost = true
	inv, err := Discover(t.Context(), options(m, "CUDA_VISIBLE_DEVICES=0,1,2"))
	if err != nil {
		t.Fatal(err)
	}
	if tokens(inv) != "0,2" || inv.Devices[1].UUID != "" {
		t.Errorf("got %+v", inv.Devices)
	}
	if !strings.Contains(inv.Note, "skipping GPU 1") || !strings.Contains(inv.Note, "does not answer") {
		t.Errorf("note %q", inv.Note)
	}
}
