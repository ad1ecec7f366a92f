package jsonline

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// benchLines are lines of about 1 KB, like those of a text corpus in Latin and in Chinese
// script, of a table and of a file of embeddings.
func benchLines() map[string][]byte {
	english := strings.Repeat(`The quick brown fox jumps over the lazy dog, and says \"why not?\" to it. `, 12)
	german := strings.Repeat(`Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich, und wundern sich. `, 11)
	chinese := strings.Repeat(`天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。`, 16)
	text := `{"id":"doc-%d","url":"https://example.org/a/b/c","text":"%s","lang":"en","meta":{"source":"crawl","score":0.875}}`
	var table, vector strings.Builder
	for k := range 48 {
		fmt.Fprintf(&table, `"column_%d":%d,`, k, k*k*1013)
	}
	for k := range 90 {
		fmt.Fprintf(&vector, "%.8f,", float64(k)*0.0173-0.5)
	}
	return map[string][]byte{
		"plain":   fmt.Appendf(nil, text, 17, strings.Repeat("word ", 190)),
		"english": fmt.Appendf(nil, text, 17, english),
		"german":  fmt.Appendf(nil, text, 17, german),
		"chinese": fmt.Appendf(nil, text, 17, chinese),
		"table":   []byte(`{` + table.String() + `"id":1}`),
		"vector":  []byte(`{"id":1,"vector":[` + vector.String() + `0]}`),
	}
}

func eachLine(b *testing.B, f func(b *testing.B, line []byte)) {
	lines := benchLines()
	for _, name := range []string{"plain", "english", "german", "chinese", "table", "vector"} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(lines[name])))
			b.ReportAllocs()
			f(b, lines[name])
		})
	}
}

func BenchmarkScan(b *testing.B) {
	w := Want("id", "_error", "embedding")
	eachLine(b, func(b *testing.B, line []byte) {
		var info Info
		for b.Loop() {
			if err := w.Scan(line, &info); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEncodingJSONValid(b *testing.B) {
	eachLine(b, func(b *testing.B, line []byte) {
		for b.Loop() {
			if !json.Valid(line) {
				b.Fatal("not valid")
			}
		}
	})
}

func BenchmarkSplice(b *testing.B) {
	members := []Member{{"id", []byte(`8`)}, {"score", []byte(`0.5`)}}
	w := Want("id", "score")
	eachLine(b, func(b *testing.B, line []byte) {
		var info Info
		if err := w.Scan(line, &info); err != nil {
			b.Fatal(err)
		}
		var dst []byte
		for b.Loop() {
			dst = Splice(dst[:0], line, &info, members)
		}
	})
}

func BenchmarkAppendString(b *testing.B) {
	eachLine(b, func(b *testing.B, line []byte) {
		var dst []byte
		for b.Loop() {
			dst = AppendString(dst[:0], line)
		}
	})
}

func BenchmarkAppendFloat32(b *testing.B) {
	var dst []byte
	f := float32(-0.5)
	for b.Loop() {
		dst, _ = AppendFloat32(dst[:0], f)
		f += 0.0173
	}
}
