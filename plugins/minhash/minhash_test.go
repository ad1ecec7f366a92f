package minhash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kerneltest"
	"github.com/gpurun/gpurun/plugins/minhash"
)

func TestConformance(t *testing.T) {
	kerneltest.Run(t, minhash.New, kerneltest.Options{
		Tolerance: -1, Device: plugins.Device{Name: "CPU 0", Threads: 3},
	})
}

// vectors is testdata/vectors.json, which generate.py made with datasketch 2.0.0.
type vectors struct {
	Texts   []string
	Vectors []struct {
		Options    json.RawMessage
		Signatures [][2]json.RawMessage
	}
}

func readVectors(t testing.TB) vectors {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestEqualToDatasketch(t *testing.T) {
	v := readVectors(t)
	for _, vector := range v.Vectors {
		t.Run(string(vector.Options), func(t *testing.T) {
			kernel := open(t, string(vector.Options), 2)
			for _, pair := range vector.Signatures {
				var text int
				var want []int64
				if err := json.Unmarshal(pair[0], &text); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(pair[1], &want); err != nil {
					t.Fatal(err)
				}
				record, _ := json.Marshal(map[string]string{"text": v.Texts[text]})
				if got := signature(t, kernel, string(record)); !slices.Equal(got, want) {
					t.Errorf("text %d %.60q: got %v, want %v", text, v.Texts[text], got[:3], want[:3])
				}
			}
		})
	}
}

func open(t testing.TB, config string, threads int) plugins.Kernel {
	t.Helper()
	kernel := minhash.New()
	if err := kernel.Open(context.Background(), plugins.Device{Threads: threads}, plugins.Config(config)); err != nil {
		t.Fatal(err)
	}
	return kernel
}

// signature returns what the kernel writes for one record.
func signature(t testing.TB, kernel plugins.Kernel, record string) (values []int64) {
	t.Helper()
	results, err := plugins.Call(context.Background(), kernel, plugins.NewBatch([][]byte{[]byte(record)}))
	if err != nil {
		t.Fatal(err)
	}
	if result := results.At(0); result.Verdict != plugins.Columns {
		t.Fatalf("verdict %s %s", result.Verdict, result.Message)
	}
	if err := json.Unmarshal(results.ColumnList()[0].AppendValue(nil, 0), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// The signature depends only on the words of a text, not on how they are written.
func TestSameText(t *testing.T) {
	kernel := open(t, `{"field":"t","size":2,"lower":true}`, 1)
	want := signature(t, kernel, `{"t":"straße übung a b"}`)
	for _, record := range []string{
		`{"t":"  straße übung a b "}`,
		`{"t":"STRAßE ÜBUNG A B"}`,
		`{"t":"stra\u00dfe\u2003\u00fcbung\n\t\u001ca   b"}`,
		`{"t":"first","t":"straße übung a b"}`,
		`{"\u0074":"straße übung a b"}`,
	} {
		if !slices.Equal(signature(t, kernel, record), want) {
			t.Errorf("%s has another signature", record)
		}
	}
	if slices.Equal(signature(t, kernel, `{"t":"straße übung a c"}`), want) {
		t.Error("another text has the same signature")
	}
	if capital := signature(t, open(t, `{"field":"t","size":2}`, 1), `{"t":"STRAßE ÜBUNG A B"}`); slices.Equal(capital, want) {
		t.Error("capital letters were made small without being asked to")
	}
}

// A record without a text fails alone.
func TestFailedRecords(t *testing.T) {
	kernel := open(t, `{"output":"sig","num_perm":4}`, 2)
	batch := [][]byte{[]byte(`{"text":"a"}`), []byte(`{"id":1}`), []byte(`{"text":null}`), []byte(`[1]`), []byte(`{"text":"b"}`)}
	results, err := plugins.Call(context.Background(), kernel, plugins.NewBatch(batch))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", `no member "text"`, `"text" is not a string`, `no member "text"`, ""} {
		result := results.At(i)
		if (result.Verdict == plugins.Failed) != (want != "") || !strings.Contains(result.Message, want) {
			t.Errorf("record %d: %s %s", i, result.Verdict, result.Message)
		}
	}
	if name := results.ColumnList()[0].Name; name != "sig" {
		t.Errorf("the column is called %q", name)
	}
}

func TestConfiguration(t *testing.T) {
	for config, want := range map[string]string{
		``:                                 "",
		`{"num_perm":1,"seed":4294967295}`: "",
		`{"shingle":"char","size":1000}`:   "",
		`{"scheme":"legacy"}`:              "",
		`{"num_perm":0}`:                   "num_perm is 0",
		`{"num_perm":100000}`:              "num_perm is 100000",
		`{"num_perm":1.5}`:                 "num_perm",
		`{"seed":-1}`:                      "seed is -1",
		`{"seed":4294967296}`:              "seed is 4294967296",
		`{"shingle":"line"}`:               `"word" or "char"`,
		`{"size":0}`:                       "size is 0",
		`{"size":1001}`:                    "size is 1001",
		`{"scheme":"affine64"}`:            `"affine32" or "legacy"`,
		`{"field":""}`:                     "field is empty",
		`{"output":""}`:                    "output is empty",
		`{"output":"_error"}`:              "failed records",
		`{"fields":"text"}`:                "fields",
	} {
		_, err := minhash.New().Describe(context.Background(), plugins.Config(config))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("configuration %s: %v", config, err)
		}
		if err != nil && fault.KindOf(err) != fault.Incompatible {
			t.Errorf("configuration %s: kind %s", config, fault.KindOf(err))
		}
	}
}

// The speed figures are for a kilobyte of words.
func benchmarkText() []byte {
	var text []byte
	for i := 0; len(text) < 1000; i++ {
		text = fmt.Appendf(text, "word%d ", i*i%997)
	}
	return text[:len(text)-1]
}

func BenchmarkSign(b *testing.B) {
	for _, scheme := range []string{"affine32", "legacy"} {
		b.Run(scheme, func(b *testing.B) {
			options, err := minhash.Parse(plugins.Config(`{"scheme":"` + scheme + `"}`))
			if err != nil {
				b.Fatal(err)
			}
			signer, text, signature := minhash.NewSigner(options), benchmarkText(), make([]int64, options.NumPerm)
			shingles := strings.Count(string(text), " ") + 2 - options.Size
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				signer.Sign(signature, text)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(shingles), "ns/shingle")
		})
	}
}
