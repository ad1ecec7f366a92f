package jsonline_test

import (
	"fmt"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// The diagram in the package comment, as a test that keeps it correct.
func Example() {
	w := jsonline.Want("id", "score")
	line := []byte(`{"id":7,"text":"a \"b\"" }`)
	var info jsonline.Info
	if err := w.Scan(line, &info); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(info.Spans, info.Close)
	fmt.Printf("%s\n", jsonline.Splice(nil, line, &info, []jsonline.Member{
		{Name: "id", Value: []byte(`8`)},
		{Name: "score", Value: []byte(`0.5`)},
	}))
	fmt.Printf("%s\n", jsonline.Keep(nil, line, &info))
	// Output:
	// [{1 6 7} {0 0 0}] 25
	// {"id":8,"text":"a \"b\"" ,"score":0.5}
	// {"id":7}
}
