package record

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// FuzzUnmark: any marked record can be restored byte for byte.
func FuzzUnmark(f *testing.F) {
	for _, line := range []string{
		`{}`, `{ }`, `{"a":1}`, ` {"a":1} `, `{"a":1, "b":[1,2] }`, `{"a":1}` + "\r",
		`{"_error":{"kind":"record"}}`, `{"_error" : 1 ,"a":2,"_error":2}`, `{"\u005ferror":"x"}`, `{"a":1,"_error":""}`,
		`{"_raw":"x"}`, `{"_raw":"x","_raw_b64":"eA=="}`, `{"_raw_b64":"eA=="}`, `{"_raw":1}`,
		``, `x`, `7`, `"text"`, `[1,2]`, `null`, `{"a":`, "\r", "\ufeff{}", "a\x00\"\\\u2028\ud7ffé😀\ufffd", "\xff\xfe", `{"a":"` + "\xff" + `"}`,
		strings.Repeat(`\"`, 5000) + "😀", strings.Repeat("😀\n\t", 3000),
	} {
		f.Add([]byte(line), "no", "step", int64(7))
	}
	f.Fuzz(func(t *testing.T, line []byte, message, step string, number int64) {
		failure := Failure{
			Kind: fault.Record, Message: strings.ToValidUTF8(message, "?"), Step: strings.ToValidUTF8(step, "?"),
			Line: number, Length: int64(len(line)), CRC32C: chunk.Checksum(line), Replaced: string(MarkOf(line)),
		}
		var marked, back bytes.Buffer
		if err := WriteMarked(&marked, line, failure.Mark()); err != nil {
			t.Fatal(err)
		}
		kept := bytes.TrimSuffix(marked.Bytes(), newline)
		if err := WriteUnmarked(&back, kept, failure); err != nil || !bytes.Equal(back.Bytes(), line) {
			t.Fatalf("%q became %q, and then %q: %v", line, kept, back.Bytes(), err)
		}
		// A different mark is not accepted.
		failure.Line++
		if err := WriteUnmarked(&back, kept, failure); err == nil {
			t.Errorf("%q is taken for the record of another line", kept)
		}
	})
}
