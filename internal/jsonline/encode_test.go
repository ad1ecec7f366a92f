package jsonline

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAppendString(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", `""`},
		{"abc", `"abc"`},
		{`a"b\c/d`, `"a\"b\\c/d"`},
		{"\b\f\n\r\t", `"\b\f\n\r\t"`},
		{"\x00\x1f\x7f", "\"\\u0000\\u001f\x7f\""},
		{"<a href='x'>&", `"<a href='x'>&"`},
		{"é漢😀\u2028\u2029\ufffd", "\"é漢😀\u2028\u2029\ufffd\""},
		{"a\xffb\xe2\x82", "\"a\ufffdb\ufffd\ufffd\""},
		{"\xed\xa0\x80", "\"\ufffd\ufffd\ufffd\""},
	} {
		if got := string(AppendString([]byte("x"), c.in)); got != "x"+c.want {
			t.Errorf("AppendString(%q) = %s, want %s", c.in, got[1:], c.want)
		}
		if got := string(AppendString([]byte("x"), []byte(c.in))); got != "x"+c.want {
			t.Errorf("AppendString(%q) = %s, want %s", c.in, got[1:], c.want)
		}
	}
}

// writes counts what WriteString passes to its writer.
type writes struct {
	bytes.Buffer
	calls, longest int
}

func (w *writes) Write(p []byte) (int, error) {
	w.calls++
	w.longest = max(w.longest, len(p))
	return w.Buffer.Write(p)
}

func TestWriteString(t *testing.T) {
	for name, unit := range map[string]string{
		"plain": "a", "grows most": "\x01", "2 bytes": "é", "3 bytes": "漢", "4 bytes": "😀", "mixed": "a\"é\n漢\x00😀", "not UTF-8": "\x80",
	} {
		for _, size := range []int{0, 1, pieceSize - 3, pieceSize - 2, pieceSize - 1, pieceSize, pieceSize + 1, 20*pieceSize + 5} {
			// A prefix of each length moves the characters over the cut.
			for prefix := range 5 {
				line := []byte(strings.Repeat("p", prefix) + strings.Repeat(unit, (size+len(unit)-1)/len(unit)))
				var w writes
				if err := WriteString(&w, line); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(w.Bytes(), AppendString(nil, line)) {
					t.Errorf("%s, %d bytes: not what AppendString gives", name, len(line))
				}
				if w.longest > bufferSize || w.calls > 2+w.Len()/(bufferSize/2) {
					t.Errorf("%s, %d bytes: %d writes of up to %d bytes", name, len(line), w.calls, w.longest)
				}
			}
		}
	}
}

func TestWriteStringFails(t *testing.T) {
	full := errors.New("disk full")
	for _, size := range []int{0, 10, 10 * bufferSize} {
		if err := WriteString(failing{full}, make([]byte, size)); !errors.Is(err, full) {
			t.Errorf("%d bytes: error %v, want %v", size, err, full)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestAppendFloat(t *testing.T) {
	for _, c := range []struct {
		f      float64
		as32   string
		as64   string
		finite bool
	}{
		{0, "0.0", "0.0", true},
		{math.Copysign(0, -1), "-0.0", "-0.0", true},
		{1, "1.0", "1.0", true},
		{-16777216, "-16777216.0", "-16777216.0", true},
		{1 << 53, "9007199000000000.0", "9007199254740992.0", true},
		{0.1, "0.1", "0.1", true},
		{1.0 / 3, "0.33333334", "0.3333333333333333", true},
		{1e20, "100000000000000000000.0", "100000000000000000000.0", true},
		{1e21, "1e+21", "1e+21", true},
		{-1e-6, "-0.000001", "-0.000001", true},
		{1e-7, "1e-7", "1e-7", true},
		{1.5e-10, "1.5e-10", "1.5e-10", true},
		{1e-9, "1e-9", "1e-9", true},
		{math.NaN(), "null", "null", false},
		{math.Inf(1), "null", "null", false},
		{math.Inf(-1), "null", "null", false},
	} {
		if got, ok := AppendFloat32([]byte("x"), float32(c.f)); string(got) != "x"+c.as32 || ok != c.finite {
			t.Errorf("AppendFloat32(%v) = %s, %v", c.f, got[1:], ok)
		}
		if got, ok := AppendFloat64([]byte("x"), c.f); string(got) != "x"+c.as64 || ok != c.finite {
			t.Errorf("AppendFloat64(%v) = %s, %v", c.f, got[1:], ok)
		}
	}
}

// marshal returns encoding/json's text with .0 appended to integers.
func marshal(v any) (string, error) {
	text, err := json.Marshal(v)
	if err == nil && !bytes.ContainsAny(text, ".e") {
		text = append(text, ".0"...)
	}
	return string(text), err
}

func TestAppendFloatAsEncodingJSON(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		f32 := math.Float32frombits(random.Uint32())
		if want, err := marshal(f32); err == nil {
			got, _ := AppendFloat32(nil, f32)
			back, _ := strconv.ParseFloat(string(got), 32)
			if string(got) != want || float32(back) != f32 {
				t.Fatalf("AppendFloat32(%v) = %s, want %s", f32, got, want)
			}
		}
		f64 := math.Float64frombits(random.Uint64())
		if want, err := marshal(f64); err == nil {
			if got, _ := AppendFloat64(nil, f64); string(got) != want {
				t.Fatalf("AppendFloat64(%v) = %s, want %s", f64, got, want)
			}
		}
	}
}

// TestAppendText: it reports what is not UTF-8.
func TestAppendText(t *testing.T) {
	long := strings.Repeat("x", 300)
	for in, want := range map[string]bool{"": true, "a": true, "é" + long + "日本語🙂": true, long + "\xff": false, "\xed\xa0\x80": false, "\xc3": false, "\"\n\xc0\xaf" + long: false} {
		got, valid := AppendText(nil, in)
		if valid != want || valid != utf8.ValidString(in) || !bytes.Equal(got, AppendString(nil, in)) {
			t.Errorf("AppendText(%q) = %s, %v", in, got, valid)
		}
	}
}
