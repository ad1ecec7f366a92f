package gpu

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

func TestParseSelection(t *testing.T) {
	for in, want := range map[string]string{
		"all":                     "all",
		" all ":                   "all",
		"0":                       "0",
		"0,2":                     "0,2",
		"2, 0":                    "2,0",
		"0-3":                     "0-3",
		"3-3":                     "3",
		"007":                     "7",
		"0-1,4,GPU-abc,MIG-12-3":  "0-1,4,GPU-abc,MIG-12-3",
		"GPU-8f4a1c2e":            "GPU-8f4a1c2e",
		"MIG-GPU-8f4a1c2e-00/1/0": "MIG-GPU-8f4a1c2e-00/1/0",
		"cpu:4":                   "cpu:4",
	} {
		sel, err := ParseSelection(in)
		if err != nil || sel.String() != want {
			t.Errorf("ParseSelection(%q) = %v, %v, want %s", in, sel, err, want)
		}
	}
}

func TestParseSelectionErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                     "empty",
		"  ":                   "empty",
		"0,,1":                 "an entry is empty",
		"0,":                   "an entry is empty",
		"3-1":                  "backwards",
		"0,0":                  "named twice",
		"0-3,2":                "named twice, in 0-3 and 2",
		"GPU-ab,GPU-AB":        "named twice",
		"cpu:0":                "from 1 to 1024",
		"cpu:-1":               "from 1 to 1024",
		"cpu:":                 "from 1 to 1024",
		"cpu":                  "from 1 to 1024",
		"cpu:x":                "from 1 to 1024",
		"cpu:99999":            "from 1 to 1024",
		"cpu:2,0":              "together with others",
		"0,all":                "together with others",
		"-1":                   "not understood",
		"1-":                   "not understood",
		"1-2-3":                "not understood",
		"1.5":                  "not understood",
		"gpu0":                 "not understood",
		"99999999999999999999": "not understood",
		"GPU-":                 "no UUID",
		"GPU-xyz":              "no UUID",
		"MIG-":                 "no name of a MIG instance",
		"MIG-a b":              "no name of a MIG instance",
	} {
		_, err := ParseSelection(in)
		if err == nil {
			t.Errorf("ParseSelection(%q): no error", in)
			continue
		}
		if fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "0-3, GPU-<uuid>") {
			t.Errorf("ParseSelection(%q): %v (%v), want a usage error with %q and the forms", in, err, fault.KindOf(err), want)
		}
	}
}

func FuzzParseSelection(f *testing.F) {
	for _, s := range []string{"all", "0,2", "0-3", "cpu:4", "GPU-ab,MIG-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sel, err := ParseSelection(s)
		if err != nil {
			return
		}
		again, err := ParseSelection(sel.String())
		if err != nil || again.String() != sel.String() {
			t.Errorf("%q reads as %q, which reads as %q, %v", s, sel, again, err)
		}
	})
}
