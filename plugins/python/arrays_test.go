package python_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// Arrays of every kind: Python encodes none of them as JSON.
func TestNumpy(t *testing.T) {
	numpy := withPackage(t, "numpy")
	tests := map[string]struct {
		body string
		want []string
	}{
		"float32":        {`return {"x": np.array([0.1, 2], "f4")}`, []string{"x=0.1", "x=2.0"}},
		"float64":        {`return {"x": np.array([0.1, 2])}`, []string{"x=0.1", "x=2.0"}},
		"float16":        {`return {"x": np.array([[0.5, 65504], [2, -0.25]], "f2")}`, []string{"x=[0.5,65504.0]", "x=[2.0,-0.25]"}},
		"long double":    {`return {"x": np.array([0.5, 2], np.longdouble)}`, []string{"x=0.5", "x=2.0"}},
		"small ints":     {`return {"x": np.array([-1, 2], "i1")}`, []string{"x=-1", "x=2"}},
		"unsigned":       {`return {"x": np.array([1, 2**64 - 1], "u8")}`, []string{"x=1", "x=18446744073709551615"}},
		"big endian":     {`return {"x": np.array([1, 258], ">i4")}`, []string{"x=1", "x=258"}},
		"truth":          {`return {"x": np.array([[True, False], [False, True]])}`, []string{"x=[true,false]", "x=[false,true]"}},
		"strings":        {`return {"x": np.array(["é", "b"])}`, []string{`x="é"`, `x="b"`}},
		"dates":          {`return {"x": np.array(["2020-01-02", "2021-03-04"], "M8[D]")}`, []string{`x="2020-01-02"`, `x="2021-03-04"`}},
		"not contiguous": {`return {"x": np.arange(12).reshape(3, 4).T[::2]}`, []string{"x=[0,4,8]", "x=[2,6,10]"}},
		"backwards":      {`return {"x": np.arange(2.0)[::-1]}`, []string{"x=1.0", "x=0.0"}},
		"deep":           {`return {"x": np.arange(8.0).reshape(2, 2, 2)}`, []string{"x=[[0.0,1.0],[2.0,3.0]]", "x=[[4.0,5.0],[6.0,7.0]]"}},
		"no width":       {`return {"x": np.zeros((2, 0))}`, []string{"x=[]", "x=[]"}},
		"objects":        {`return {"x": np.array([{"a": 1}, None], object)}`, []string{`x={"a":1}`, "x=null"}},
		"not finite":     {`return {"x": np.array([[1, np.nan], [np.inf, -np.inf]], "f4")}`, []string{"x=[1.0,null]", "x=[null,null]"}},
		"a list of rows": {`return {"x": [np.zeros(2, "f4"), np.ones(2, "f4")]}`, []string{"x=[0.0,0.0]", "x=[1.0,1.0]"}},
		"scalars":        {`return {"x": [np.float32(0.1), np.float32(2)]}`, []string{"x=0.1", "x=2.0"}},
		"ragged rows":    {`return {"x": [np.zeros(1), np.ones(2)]}`, []string{"x=[0.0]", "x=[1.0,1.0]"}},
		"in a dict":      {`return [{"x": np.float64(0.5), "y": np.arange(2)}, None]`, []string{`{"x":0.5,"y":[0,1]}`, "drop"}},
		"of its input":   {`return {"x": batch["n"] * 2, "y": batch["v"].sum(1)}`, []string{"x=2 y=3", "x=6 y=7"}},
		"its own memory": {"out[:] = batch['n']\n    return {'x': out}", []string{"x=1.0", "x=3.0"}},
		"masked":         {`return {"x": np.ma.masked_array([1.5, 2], [True, False])}`, []string{"x=null", "x=2.0"}},
		"masked ones":    {`return {"x": [np.ma.masked, np.float64(2)]}`, []string{"x=null", "x=2.0"}},
		"mixed ints":     {`return {"x": [np.uint64(2**63 + 1), np.int64(1)]}`, []string{"x=9223372036854775809", "x=1"}},
		"truth and ints": {`return {"x": [np.True_, np.int64(3)]}`, []string{"x=true", "x=3"}},
		"list of dates":  {`return {"x": [np.datetime64("2020-01-02"), np.datetime64("2021-03-04T05:06:07.000000008")]}`, []string{`x="2020-01-02"`, `x="2021-03-04T05:06:07.000000008"`}},
		"no date":        {`return {"x": np.array([["2020-01-02", "NaT"], ["NaT", "NaT"]], "M8[D]")}`, []string{`x=["2020-01-02",null]`, "x=[null,null]"}},
		"dates in dicts": {`return [{"x": np.array(["2020-01-02"], "M8[D]"), "y": float("nan")}, None]`, []string{`{"x":["2020-01-02"],"y":null}`, "drop"}},
		"some missing":   {"return {'x': batch['some']}", []string{"x=1", `failed: the record has no member "some"`}},
	}
	bodies := make(map[string]string)
	for name, test := range tests {
		bodies[name] = test.body
	}
	k := start(t, "import numpy as np\nout = np.zeros(2)\n"+cases(bodies), interpreter(numpy))
	records := []string{`{"n":1,"v":[1,2],"some":1}`, `{"n":3,"v":[3,4]}`}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			use(t, k, name)
			expect(t, k, records, test.want)
		})
	}
	unusable := map[string]string{
		`return {"x": np.array(3.0)}`:          "column 'x' is a single value, not one for each of 2 records",
		`return {"x": np.zeros(3)}`:            "process returned 3 values in column 'x' for 2 records",
		`return {"x": np.zeros(2, complex)}`:   "column 'x' is complex",
		`return np.zeros(2)`:                   "process returned a ndarray",
		`return {"x": np.array(None, object)}`: "column 'x' is a single value",
	}
	bodies = make(map[string]string)
	for body := range unusable {
		bodies[body] = body
	}
	k = start(t, "import numpy as np\n"+cases(bodies), interpreter(numpy))
	for body, want := range unusable {
		use(t, k, body)
		kind := fault.Batch
		if strings.Contains(body, "np.array(3.0)") || strings.Contains(body, "np.zeros(3)") || strings.Contains(body, "np.array(None") {
			kind = fault.Incompatible // a wrong number of values, whatever the records are
		}
		if _, err := call(t, k, records...); err == nil || !strings.HasPrefix(err.Error(), want) || fault.KindOf(err) != kind {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// Simulates a framework that computes its arrays asynchronously: results are taken only
// after the next batch was launched, and in order.
func TestDeferred(t *testing.T) {
	numpy := withPackage(t, "numpy")
	signal := filepath.Join(t.TempDir(), "go")
	k := start(t, fmt.Sprintf("signal = %q", signal)+`
import os, time
import numpy as np
log = []
class Later:
    def __init__(self, values): self.values, self.shape = np.array(values), (len(values),)
    def copy_to_host_async(self): log.append("copy")
    def __array__(self, dtype=None, copy=None):
        log.append("wait")
        return self.values
def process(batch):
    while not os.path.exists(signal): time.sleep(0.001)
    log.append("launch")
    return {"x": Later(batch["n"]), "log": [" ".join(log)] * len(batch)}
`, interpreter(numpy))
	expectDeferred(t, k, signal)
}

func TestTorch(t *testing.T) {
	torch := withPackage(t, "torch")
	tests := map[string]struct {
		body string
		want []string
	}{
		"float32":        {`return {"x": torch.tensor([0.1, 2])}`, []string{"x=0.1", "x=2.0"}},
		"bfloat16":       {`return {"x": torch.tensor([[0.5, 1], [2, 3]], dtype=torch.bfloat16)}`, []string{"x=[0.5,1.0]", "x=[2.0,3.0]"}},
		"float16":        {`return {"x": torch.tensor([0.5, 2], dtype=torch.float16)}`, []string{"x=0.5", "x=2.0"}},
		"float64":        {`return {"x": torch.tensor([0.1, 2], dtype=torch.float64)}`, []string{"x=0.1", "x=2.0"}},
		"int8":           {`return {"x": torch.tensor([-1, 2], dtype=torch.int8)}`, []string{"x=-1", "x=2"}},
		"bool":           {`return {"x": torch.tensor([True, False])}`, []string{"x=true", "x=false"}},
		"not contiguous": {`return {"x": torch.arange(6).reshape(3, 2).T}`, []string{"x=[0,2,4]", "x=[1,3,5]"}},
		"with gradient":  {`return {"x": torch.ones(2, requires_grad=True) * 2}`, []string{"x=2.0", "x=2.0"}},
		"rows":           {`return {"x": [torch.zeros(2), torch.ones(2)]}`, []string{"x=[0.0,0.0]", "x=[1.0,1.0]"}},
		"large uint64":   {`return {"x": torch.tensor([1, 2**64 - 1], dtype=torch.uint64)}`, []string{"x=1", "x=18446744073709551615"}},
		"negative view":  {`return {"x": torch.imag(torch.tensor([1 + 2j, 3 + 4j]).conj())}`, []string{"x=-2.0", "x=-4.0"}},
		"one negative":   {`return {"x": torch._neg_view(torch.tensor([1.0, 2.0]))}`, []string{"x=-1.0", "x=-2.0"}},
		"sparse":         {`return {"x": torch.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse()}`, []string{"x=[0.0,1.0]", "x=[2.0,0.0]"}},
		"quantized":      {`return {"x": torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.5, 0, torch.qint8)}`, []string{"x=0.5", "x=1.0"}},
		"input":          {`return {"x": batch["v"] * 2}`, []string{"x=[2,4]", "x=[6,8]"}},
	}
	bodies := make(map[string]string)
	for name, test := range tests {
		bodies[name] = test.body
	}
	k := start(t, "import torch\ninputs = {'v': 'torch'}\n"+cases(bodies), interpreter(torch))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			use(t, k, name)
			expect(t, k, []string{`{"v":[1,2]}`, `{"v":[3,4]}`}, test.want)
		})
	}
}
