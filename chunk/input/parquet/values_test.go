package parquet

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
)

func int96(nanos uint64, day uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, nanos), day)
}

func TestTimes(t *testing.T) {
	for want, got := range map[string][]byte{
		`"1970-01-01T00:00:00Z"`:          appendTimestamp(nil, 0, spec.UnitMillis, true),
		`"1969-12-31T23:59:59.999"`:       appendTimestamp(nil, -1, spec.UnitMillis, false),
		`"2026-01-02T03:04:05.123456Z"`:   appendTimestamp(nil, 1767323045123456, spec.UnitMicros, true),
		`"0000-01-01"`:                    appendDate(nil, -719528),
		`"-0001-12-31"`:                   appendDate(nil, -719529),
		`"+10000-01-01"`:                  appendDate(nil, 2932897),
		`"23:59:59.000000001"`:            appendTime(nil, 86399000000001, spec.UnitNanos),
		`-1`:                              appendTime(nil, -1, spec.UnitMillis),
		`"1970-01-01T00:00:00.000000001"`: appendInt96(nil, int96(1, 2440588)),
		`"2026-01-02T03:04:05"`:           appendInt96(nil, int96(11045e9, 2461043)),
	} {
		if string(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestDecimals(t *testing.T) {
	for want, got := range map[string][]byte{
		"0.05":                  appendDecimal64(nil, 5, 2),
		"-0.05":                 appendDecimal64(nil, -5, 2),
		"12.00":                 appendDecimal64(nil, 1200, 2),
		"7":                     appendDecimal64(nil, 7, 0),
		"-1":                    appendDecimal(nil, []byte{0xff}, 0),
		"-0.01":                 appendDecimal(nil, []byte{0xff, 0xff}, 2),
		"0.0":                   appendDecimal(nil, nil, 1),
		"1844674407370955161.6": appendDecimal(nil, []byte{1, 0, 0, 0, 0, 0, 0, 0, 0}, 1),
	} {
		if string(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestThriftLengths(t *testing.T) {
	for name, data := range map[string]string{
		"list longer than the data": "\x19\xfc\xff\xff\xff\x7f",
		"text longer than the data": "\x18\xff\xff\x03ab",
		"no end":                    "\x15\x02",
		"unknown type":              "\x1e",
		"nested too deep":           strings.Repeat("\x1c", 40),
		"endless number":            "\x15" + strings.Repeat("\xff", 20),
	} {
		r := &thriftReader{data: []byte(data)}
		if r.fields(nil); r.err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	r := &thriftReader{data: []byte("\x15\x02\x00rest")}
	if r.fields(nil); r.err != nil || r.at != 3 {
		t.Errorf("%d, %v", r.at, r.err)
	}
}
