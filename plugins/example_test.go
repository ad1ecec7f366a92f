package plugins_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/process"
)

// upper is a complete kernel: it converts every record to uppercase.
type upper struct{ plugins.Base }

func (upper) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		results.Line(i, bytes.ToUpper(batch.Record(i)))
	}
	return nil
}

// The main function of a kernel program is one line: plugins.Serve(upper{}). This example
// sends a batch through the same protocol within one process.
func Example() {
	kernel, end := process.Loopback(upper{})
	defer end()
	ctx := context.Background()
	if err := kernel.Open(ctx, plugins.Device{Name: "CPU 0"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	batch := plugins.NewBatch([][]byte{[]byte(`{"text":"one"}`), []byte(`{"text":"two"}`)})
	results, err := plugins.Call(ctx, kernel, batch)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range results.Len() {
		fmt.Printf("%s\n", results.At(i).Lines[0])
	}
	_ = kernel.Close()
	// Output:
	// {"TEXT":"ONE"}
	// {"TEXT":"TWO"}
}

// upperMain is the main function of a kernel program.
func upperMain() { plugins.Serve(upper{}) }

// exampleVariable turns the test binary into the program.
const exampleVariable = "GPURUN_EXAMPLE_KERNEL"

func TestMain(m *testing.M) {
	if os.Getenv(exampleVariable) != "" {
		upperMain()
		return
	}
	goleak.VerifyTestMain(m)
}

// The main function of a kernel program is plugins.Serve(upper{}). A worker starts the
// program, opens the kernel once, and sends it batch after batch. Here the test binary is
// the program.
func ExampleServe() {
	ctx := context.Background()
	program, err := os.Executable()
	if err != nil {
		fmt.Println(err)
		return
	}
	kernel, err := process.Start(ctx, process.Command{Path: program, Env: append(os.Environ(), exampleVariable+"=1")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer kernel.Kill()
	if err := kernel.Open(ctx, plugins.Device{Name: "CPU 0"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	results, err := plugins.Call(ctx, kernel, plugins.NewBatch([][]byte{[]byte(`{"text":"one"}`)}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", results.At(0).Lines[0])
	fmt.Println(kernel.Close())
	// Output:
	// {"TEXT":"ONE"}
	// <nil>
}

// scores gives every record a number and rejects a record without text. The worker gets
// the numbers in binary form and splices them into the records.
type scores struct{ plugins.Base }

func (scores) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	values := make([]float32, batch.Len())
	for i := range batch.Len() {
		var record struct{ Text string }
		if err := batch.Decode(i, &record); err != nil || record.Text == "" {
			results.Fail(i, "the record has no text")
			continue
		}
		values[i] = float32(len(record.Text)) / 10
	}
	results.Column(plugins.Float32s("score", 0, values))
	return nil
}

func ExampleResults_Column() {
	batch := plugins.NewBatch([][]byte{[]byte(`{"text":"one"}`), []byte(`{"id":2}`)})
	results, err := plugins.Call(context.Background(), scores{}, batch)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range results.Len() {
		switch result := results.At(i); result.Verdict {
		case plugins.Columns:
			column := results.ColumnList()[0]
			fmt.Printf("%s: %s\n", column.Name, column.AppendValue(nil, i))
		default:
			fmt.Printf("%s: %s\n", result.Verdict, result.Message)
		}
	}
	// Output:
	// score: 0.3
	// fail: the record has no text
}
