package chunk_test

import (
	"fmt"

	"github.com/gpurun/gpurun/chunk"
)

// Ten records on four workers: three each for three of them, and one for the last.
func ExampleSize() {
	const records, workers = 10, 4
	size := chunk.Size(records, workers, 1)
	for first := int64(0); first < records; first += size {
		fmt.Printf("records %d to %d\n", first, min(first+size, records)-1)
	}
	fmt.Println("in whole batches of 2:", chunk.Size(records, workers, 2))
	// Output:
	// records 0 to 2
	// records 3 to 5
	// records 6 to 8
	// records 9 to 9
	// in whole batches of 2: 4
}

// A worker that stops in the middle of a chunk hands back the rest.
func ExampleChunk_Tail() {
	all := chunk.Chunk{File: "in.jsonl", First: 100, Records: 50, Line: 101, Offset: 4000, Length: 2000}
	stopped := chunk.Place{Offset: 4800, Line: 121} // where record 120 starts
	done, rest := all.Head(stopped, 120), all.Tail(stopped, 120)
	fmt.Printf("done: %d records from %d, %d bytes\n", done.Records, done.First, done.Length)
	fmt.Printf("rest: %d records from %d, %d bytes\n", rest.Records, rest.First, rest.Length)
	// Output:
	// done: 20 records from 100, 800 bytes
	// rest: 30 records from 120, 1200 bytes
}
