package python

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// With little shared memory, batches wait for each other, and one that does not fit fails
// with a clear error.
func TestLittleMemory(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("SKIPPED: no python3")
	}
	sizes := memorySizes
	memorySizes = []int{1 << 20}
	defer func() { memorySizes = sizes }()
	file := filepath.Join(t.TempDir(), "kernel.py")
	source := "def process(batch): return {'x': [text * n for text, n in zip(batch['text'], batch['n'])]}"
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(resolve.PythonConfig{File: file})
	if err != nil {
		t.Fatal(err)
	}
	k := New()
	defer k.Close()
	if _, err := k.Describe(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if err := k.Open(t.Context(), plugins.Device{Name: "CPU 0"}, config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	text := strings.Repeat("a", 200<<10)
	var flight []*plugins.Results
	for range 10 {
		flight = append(flight, plugins.Submit(ctx, k, plugins.NewBatch([][]byte{fmt.Appendf(nil, `{"n":1,"text":"%s"}`, text)})))
	}
	for _, results := range flight {
		if err := results.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if got := string(results.ColumnList()[0].AppendValue(nil, 0)); got != `"`+text+`"` {
			t.Fatalf("%d bytes", len(got))
		}
	}
	for record, want := range map[string]string{
		fmt.Sprintf(`{"n":1,"text":"%s%s%s"}`, text, text, text): "does not fit into the memory shared with Python",
		fmt.Sprintf(`{"n":9,"text":"%s"}`, text):                 "more than the 524288 that fit into shared memory",
	} {
		_, err := plugins.Call(ctx, k, plugins.NewBatch([][]byte{[]byte(record)}))
		if err == nil || !strings.Contains(err.Error(), want) || fault.KindOf(err) != fault.Batch {
			t.Errorf("%v", err)
		}
	}
}

// Invalid responses are rejected, and nothing outside the process's own memory is read.
func TestNonsense(t *testing.T) {
	memory := make([]byte, 4096)
	records := plugins.NewBatch([][]byte{[]byte(`{}`), []byte(`{}`)})
	for name, text := range map[string]string{
		"outside":         `{"block":[4000,200]}`,
		"far outside":     `{"block":[18446744073709551615,2]}`,
		"our half":        `{"block":[0,10]}`,
		"no verdicts":     `{"block":[2048,64],"verdicts":[0,1]}`,
		"verdict 0":       `{"block":[2048,64],"verdicts":[0,2]}`,
		"outside a block": `{"block":[2048,64],"verdicts":[63,2]}`,
		"too short":       `{"block":[2048,64],"columns":[{"name":"x","kind":"float32","data":[0,4]}]}`,
		"negative":        `{"block":[2048,64],"columns":[{"name":"x","kind":"float32","shape":[-1],"data":[0,8]}]}`,
		"overflow":        `{"block":[2048,64],"columns":[{"name":"x","kind":"float32","shape":[2147483647,2147483647,2147483647],"data":[0,8]}]}`,
		"unknown":         `{"block":[2048,64],"columns":[{"name":"x","kind":"float8","data":[0,8]}]}`,
		"no lengths":      `{"block":[2048,64],"columns":[{"name":"x","kind":"string","data":[0,8]}]}`,
		"odd lengths":     `{"block":[2048,64],"columns":[{"name":"x","kind":"string","data":[0,8],"lengths":[0,7]}]}`,
		"wrong lengths":   `{"block":[2048,64],"columns":[{"name":"x","kind":"string","data":[0,8],"lengths":[0,8]}]}`,
		"refused no row":  `{"block":[2048,64],"refused":[{"message":"m","rows":[32,4]}]}`,
	} {
		clear(memory)
		memory[2048+32] = 9
		var a answer
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatal(err)
		}
		d := &decoder{batch: records, results: plugins.NewResults(2)}
		if err := d.decode(memory, &a); err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
}
