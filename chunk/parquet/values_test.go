package parquet

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func int96(nanos uint64, day uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, nanos), day)
}

func TestTimes(t *testing.T) {
	of := func(t Type) func(value int64) []byte {
		return func(value int64) []byte { return t.Writer()(nil, binary.LittleEndian.AppendUint64(nil, uint64(value))) }
	}
	for want, got := range map[string][]byte{
		`"1970-01-01T00:00:00Z"`:          of(TimestampUTC + "(ms)")(0),
		`"1969-12-31T23:59:59.999"`:       of(Timestamp + "(ms)")(-1),
		`"2026-01-02T03:04:05.123456Z"`:   of(TimestampUTC)(1767323045123456),
		`"24:00:00"`:                      of(Time + "(ms)")(86400000),
		`"00:00:00.500"`:                  of(TimeUTC + "(ms)")(500),
		`"+10000-01-01T00:00:00Z"`:        of(TimestampUTC + "(ms)")(253402300800000),
		`"0000-01-01"`:                    AppendDate(nil, -719528),
		`"-0001-12-31"`:                   AppendDate(nil, -719529),
		`"+10000-01-01"`:                  AppendDate(nil, 2932897),
		`"23:59:59.000000001"`:            of(Time + "(ns)")(86399000000001),
		`-1`:                              of(Time + "(ms)")(-1),
		`"1970-01-01T00:00:00.000000001"`: AppendInt96(nil, int96(1, 2440588)),
		`"2026-01-02T03:04:05"`:           AppendInt96(nil, int96(11045e9, 2461043)),
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
		"-1":                    AppendDecimal(nil, []byte{0xff}, 0),
		"-0.01":                 AppendDecimal(nil, []byte{0xff, 0xff}, 2),
		"0.0":                   AppendDecimal(nil, nil, 1),
		"1844674407370955161.6": AppendDecimal(nil, []byte{1, 0, 0, 0, 0, 0, 0, 0, 0}, 1),
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
		for _, target := range []any{new(Empty), new(FileMetaData), new(PageHeader)} {
			if _, err := Unmarshal([]byte(data), target); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	}
	if n, err := Unmarshal([]byte("\x15\x02\x00rest"), new(Empty)); err != nil || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
}

// TestThrift: a struct is what it was after it is encoded and decoded.
func TestThrift(t *testing.T) {
	one := int32(-1)
	no := false
	for _, want := range []any{
		&FileMetaData{Schema: Schema{Columns: []Column{{Name: "a", Type: "decimal(5,2)"}, {Name: "t", Type: "timestamptz(ns)[]"}}}.Elements(), Rows: -5, FooterKey: []byte{}, KeyValues: make([]KeyValue, 20)},
		&ColumnIndex{NullPages: []bool{true, false}, Min: [][]byte{{}, {1}}, Max: [][]byte{{}, {2}}, Nulls: []int64{5, 0}},
		&PageHeader{Sum: &one, DataV2: &DataHeaderV2{Compressed: &no}},
	} {
		data := Marshal(reflect.ValueOf(want).Elem().Interface())
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
		if n, err := Unmarshal(append(data, 1), got); err != nil || n != len(data) {
			t.Errorf("%d of %d bytes, %v", n, len(data), err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	}
}
