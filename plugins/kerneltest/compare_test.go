package kerneltest

import "testing"

// TestSameJSON: a vector's small components carry the rounding of its large ones, and a
// number that stands alone has only its own size.
func TestSameJSON(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"[0.9, 0.0000160]", "[0.9, 0.0000161]", true}, // 1e-7 apart, in a vector of length 1
		{"[0.9, 0.1]", "[0.9, 0.11]", false},
		{"[0.00001, 0.0000160]", "[0.00001, 0.0000161]", false},
		{"0.0000160", "0.0000161", false},
		{"[[1, 2], [0.00001, 0]]", "[[1, 2], [0.000011, 0]]", false}, // each row has its own scale
		{"[1, 2]", "[1, 2, 3]", false},
		{`{"x": 1}`, `{"x": 1.00001}`, true},
		{`{"x": 1}`, `{"y": 1}`, false},
	} {
		if got := sameJSON(test.a, test.b, defaultTolerance); got != test.want {
			t.Errorf("%s and %s: %v", test.a, test.b, got)
		}
	}
}
