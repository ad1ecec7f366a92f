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
		"CPU:4":                   "cpu:4",
		"ALL":                     "all",
		"gpu-8F,mig-12":           "GPU-8F,MIG-12",
		"2:0,2:1,1":               "2:0,2:1,1",
	} {
		sel, err := ParseSelection(in)
		if err != nil || sel.String() != want {
			t.Errorf("ParseSelection(%q) = %v, %v, want %s", in, sel, err, want)
		}
	}
}

func TestParseSelectionErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                     "the selection is empty",
		"  ":                   "the selection is empty",
		"0,,1":                 "an entry between commas is empty",
		"0,":                   "an entry between commas is empty",
		"3-1":                  "backwards",
		"0,0":                  "0 is named twice",
		"0-3,2":                "0-3 and 2 name a GPU twice",
		"GPU-ab,GPU-AB":        "name a GPU twice",
		"cpu:0":                "from 1 to 1024",
		"cpu:-1":               "from 1 to 1024",
		"cpu:":                 "from 1 to 1024",
		"cpu":                  "from 1 to 1024",
		"cpu:x":                "from 1 to 1024",
		"cpu:99999":            "from 1 to 1024",
		"cpu:2,0":              "cannot be combined with other devices",
		"0,all":                "cannot be combined with other devices",
		"-1":                   "is neither an index nor a UUID",
		"1-":                   "is neither an index nor a UUID",
		"1-2-3":                "is neither an index nor a UUID",
		"1.5":                  "is neither an index nor a UUID",
		"gpu0":                 "write 0",
		"99999999999999999999": "is neither an index nor a UUID",
		"cuda:1":               "write 1",
		"GPU 1":                "write 1",
		"0;2":                  "separate several by commas, as in 0,2",
		"0 1":                  "separate several by commas, as in 0,1",
		"2,2:0":                "2 and 2:0 name a GPU twice",
		"2:0,2:0":              "2:0 is named twice",
		"2:x":                  "is neither an index nor a UUID",
		"GPU-":                 "is not the UUID of a GPU",
		"GPU-xyz":              "is not the UUID of a GPU",
		"MIG-":                 "is not the UUID of a MIG instance",
		"MIG-a b":              "is not the UUID of a MIG instance",
	} {
		_, err := ParseSelection(in)
		if err == nil {
			t.Errorf("ParseSelection(%q): no error", in)
			continue
		}
		if fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSelection(%q): %v (%v), want a usage error with %q", in, err, fault.KindOf(err), want)
		}
		if unknown := strings.Contains(want, "neither"); unknown != strings.Contains(err.Error(), "0,2 or 0-3") && want != "the selection is empty" {
			t.Errorf("ParseSelection(%q): %v: the forms are for what has none of them", in, err)
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
