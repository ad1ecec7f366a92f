package parquet

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestParseTypes: names of types have one spelling, and an unknown one lists all.
func TestParseTypes(t *testing.T) {
	for name, want := range map[string]string{
		"int8": "int8", "uint64": "uint64", "binary": "bytes", "binary[]": "bytes[]", "binary(16)": "binary(16)", "uuid[][]": "uuid[][]",
		"timestamp(us)": "timestamp", "timestamptz(us)[]": "timestamptz[]", "timestamp(ns)": "timestamp(ns)", "time(ms)": "time(ms)",
		"decimal(38,10)": "decimal(38,10)", "decimal(38, 10)": "decimal(38,10)", "decimal(1,1)[]": "decimal(1,1)[]",
		"struct(bytes, path)": "struct(bytes,path)", "struct(path,bytes)": "struct(path,bytes)", "struct(bytes,path)[]": "error: a struct has the members bytes and path, and cannot be in a list", "struct": "error: a struct has", "struct(a)": "error: a struct has",
		"decimal": "error: a decimal has up to 76 digits", "decimal(77,0)": "error: a decimal has", "decimal(5,6)": "error: a decimal has", "decimal(05,2)": "error: a decimal",
		"decimal(5)": "error: a decimal", "decimal(5,2": "error: a decimal", "timestamp(s)": "error: the units are ms, us and ns: timestamp(ns)",
		"binary(0)": "error: write binary", "int": "error: uint64, float32, float64, decimal(P,S), string, json, bytes or binary, binary(N), struct(bytes,path), uuid, date, time, timestamp, timestamptz",
		"": "error: unknown column type", "(": "error: unknown", "[]": "error: unknown", "date(ns)": "error: unknown",
	} {
		got, err := ParseType(name)
		if text, wrong := strings.CutPrefix(want, "error: "); wrong != (err != nil) || wrong && !strings.Contains(err.Error(), text) || !wrong && string(got) != want {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}

// TestParseValues: values are exact, or do not fit.
func TestParseValues(t *testing.T) {
	for _, test := range []struct {
		typ         Type
		value, want string // of the encoding PLAIN, in hexadecimal
	}{
		{Int8, "-128", "80ffffff"}, {Int8, "128", `128 is not an int8`}, {Int8, "1.0", "01000000"}, {Int16, "-32769", "is not an int16"}, {Int32, "2147483647", "ffffff7f"}, {Int32, "2147483648", "is not an int32"},
		{Uint8, "255", "ff000000"}, {Uint8, "256", "256 is not a uint8"}, {Uint8, "-1", "is not a uint8"}, {Uint32, "4294967295", "ffffffff"}, {Uint32, "4294967296", "is not a uint32"},
		{Uint64, "18446744073709551615", "ffffffffffffffff"}, {Uint64, "18446744073709551616", "is not a uint64"}, {Uint64, "-1", "is not a uint64"}, {Uint64, "1e3", "e803000000000000"}, {Uint64, `"1"`, `"1" is not a uint64`},
		{Date, `"1970-01-01"`, "00000000"}, {Date, `"1969-12-31"`, "ffffffff"}, {Date, `"2024-02-29"`, "464d0000"}, {Date, `"2023-02-29"`, "is not a date"}, {Date, `"2023-2-9"`, "is not a date"}, {Date, "5", "5 is not a date"}, {Date, `"\u0031970-01-02"`, "01000000"},
		{Date, `""`, "is not a date"}, {Date, `"2023-01-01T00:00:00"`, "is not a date"}, {Date, `"+99999999-01-01"`, "is not a date"},
		{Time, `"00:00:01.5"`, "60e3160000000000"}, {Time, `"24:00:00"`, "0060d71d14000000"}, {Time, `"24:00:01"`, "a time is written as"}, {Time, `"12:60:00"`, "a time is written as"}, {"time(ms)", `"00:00:01.5"`, "dc050000"}, {"time(ms)", `"00:00:01.5001"`, "more digits than the unit"},
		{Timestamp, `"1970-01-01T00:00:00.000001"`, "0100000000000000"}, {Timestamp, `"1970-01-01 00:00:00.0000010"`, "0100000000000000"}, {Timestamp, `"1969-12-31T23:59:59.999999"`, "ffffffffffffffff"},
		{Timestamp, `"1970-01-01T00:00:00Z"`, "it has a time zone: the type for that is timestamptz"}, {TimestampUTC, `"1970-01-01T00:00:00"`, "it has no time zone"}, {Timestamp, `"1970-01-01"`, "must be written as"}, {Timestamp, `"1970-01-01T00:00:00.1234567"`, "more digits than the unit"},
		{TimestampUTC, `"1970-01-01T02:00:00.000001+02:00"`, "0100000000000000"}, {TimestampUTC, `"1969-12-31T23:30:00-00:30"`, "0000000000000000"}, {TimestampUTC, `"1970-01-01T00:00:00+2"`, "must be written as"}, {Timestamp, `"1970-01-01T00:00:00."`, "must be written as"}, {Timestamp, `"1970-01-01T0:00:00"`, "must be written as"}, {Time, `"00:00:00,5"`, "a time is written as"}, {"timestamp(ns)", `"1970-01-01T00:00:00.0000000001"`, "more digits than the unit"},
		{"timestamp(ns)", `"2262-04-11T23:47:16.854775807"`, "ffffffffffffff7f"}, {"timestamp(ns)", `"2262-04-11T23:47:16.854775808"`, "cannot represent it"}, {"timestamp(ns)", `"1677-09-21T00:12:43.145224192"`, "0000000000000080"}, {"timestamp(ns)", `"1677-09-21T00:12:43.145224191"`, "cannot represent it"}, {"timestamp(ns)", `"+20000-01-01T00:00:00"`, "cannot represent it"},
		{"decimal(5,2)", "1.5", "000096"}, {"decimal(5,2)", "-1.5", "ffff6a"}, {"decimal(5,2)", `"1.50000"`, "000096"}, {"decimal(5,2)", "1.505", "more than 2 digits after the point"}, {"decimal(5,2)", "1000", "more than 3 digits before the point"}, {"decimal(5,2)", "-999.99", "fe7961"}, {"decimal(5,2)", "1e2", "002710"}, {"decimal(5,2)", "100e-2", "000064"},
		{"decimal(5,2)", "1e-9", "after the point"}, {"decimal(5,2)", "1e999999999999", "is not a number"}, {"decimal(5,2)", "0e9999", "000000"}, {"decimal(5,2)", "-0.00", "000000"}, {"decimal(5,2)", `"x"`, "is not a number"}, {"decimal(5,2)", `""`, "is not a number"}, {"decimal(5,2)", `"-"`, "is not a number"}, {"decimal(5,2)", `"1."`, "is not a number"}, {"decimal(5,2)", "true", "is not a number"},
		{"decimal(38,10)", "12345678901234567890.1234567900", decimalHex("123456789012345678901234567900", 16)},
		{UUID, `"00112233-4455-6677-8899-aabbccddeeff"`, "24000000" + hex.EncodeToString([]byte("00112233-4455-6677-8899-aabbccddeeff"))}, {UUID, `"00112233-4455-6677-8899-AABBCCDDEEFF"`, "24000000" + hex.EncodeToString([]byte("00112233-4455-6677-8899-aabbccddeeff"))}, {UUID, `"00112233445566778899aabbccddeeff----"`, "is not a uuid"}, {UUID, `"0011223-44455-6677-8899-aabbccddeeff"`, "is not a uuid"},
		{"binary(2)", `"AAE="`, "0001"}, {"binary(2)", `"AAEC"`, "is not a binary(2)"}, {Bytes, `"AAE="`, "020000000001"},
		{Date.List(), `["1970-01-02","x"]`, `an element of the list: "x" is not a date`},
	} {
		plain, err := newValueParser(test.typ).add(nil, []byte(test.value))
		switch {
		case err != nil && !strings.Contains(err.Error(), test.want):
			t.Errorf("%s %s: %v", test.typ, test.value, err)
		case err == nil && hex.EncodeToString(plain) != test.want:
			t.Errorf("%s %s: %x, want %s", test.typ, test.value, plain, test.want)
		}
	}
}

func decimalHex(digits string, size int) string {
	n, _ := new(big.Int).SetString(digits, 10)
	return hex.EncodeToString(n.FillBytes(make([]byte, size)))
}

// TestRandomValues: dates agree with the time package, decimals with math/big.
func TestRandomValues(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	dec, _ := Type("decimal(30,6)").traits()
	for range 20000 {
		days := random.Int64N(6000000) - 3000000
		at := time.Unix(days*86400, 0).UTC()
		text := at.Format("2006-01-02")
		if year := at.Year(); year < 0 || year > 9999 {
			text = fmt.Sprintf("%+05d-%02d-%02d", year, at.Month(), at.Day())
		}
		if got, ok := parseDate([]byte(text)); !ok || got != days {
			t.Fatalf("%s: %d %v, want %d", text, got, ok, days)
		}
		n := new(big.Int).Rsh(new(big.Int).SetUint64(random.Uint64()), uint(random.IntN(64)))
		n.Mul(n, big.NewInt(random.Int64N(1e10)+1))
		if random.IntN(2) == 0 {
			n.Neg(n)
		}
		number := new(big.Rat).SetFrac(n, big.NewInt(1000000)).FloatString(6)
		value, err := dec.appendDecimal(nil, []byte(number))
		if err != nil {
			t.Fatalf("%s: %v", number, err)
		}
		got := new(big.Int).SetBytes(value)
		if value[0]&0x80 != 0 {
			got.Sub(got, new(big.Int).Lsh(big.NewInt(1), uint(8*len(value))))
		}
		if got.Cmp(n) != 0 {
			t.Fatalf("%s becomes %s", number, got)
		}
	}
}

// TestCheck: results that do not fit are refused.
func TestCheck(t *testing.T) {
	s := Schema{Columns: []Column{
		{Name: "id", Type: Int64}, {Name: "f", Type: Float64}, {Name: "g", Type: Float32}, {Name: "s", Type: String},
		{Name: "b", Type: Bool}, {Name: "x", Type: Bytes}, {Name: "j", Type: JSON}, {Name: "l", Type: Int64.List()},
		{Name: "n", Type: Float32.List().List()}, {Name: "file", Type: StructOf("path", "bytes")},
	}}
	for line, want := range map[string]string{
		`{"id":1,"f":1,"g":1e-3,"s":"a","b":true,"x":"YQ==","j":[1]}`: "",
		`{"id":null,"other":1}`:       "",
		`{}`:                          "",
		`{"id":1.0}`:                  "",
		`{"id":-9223372036854775808}`: "",
		`{"id":9223372036854775808}`:  `column "id": 9223372036854775808 is not an int64`,
		`{"id":1.5}`:                  `column "id": 1.5 is not an int64`,
		`{"id":"1"}`:                  `column "id": "1" is not an int64`,
		`{"f":"1"}`:                   `column "f": "1" is not a float64`,
		`{"f":1e999}`:                 `column "f": 1e999 is not a float64`,
		`{"g":1e39}`:                  `column "g": 1e39 is not a float32`,
		`{"s":1}`:                     `column "s": 1 is not a string`,
		`{"b":0}`:                     `column "b": 0 is not a bool`,
		`{"l":[1, 2]}`:                "",
		`{"l":[]}`:                    "",
		`{"l":null}`:                  "",
		`{"l":1}`:                     `column "l": 1 is not an int64[]`,
		`{"l":[1,"a"]}`:               `column "l": an element of the list: "a" is not an int64`,
		`{"l":[null]}`:                `column "l": an element of the list is null, not an int64`,
		`{"n":[[1, 2],[], [null]]}`:   "",
		`{"n":[]}`:                    "",
		`{"n":null}`:                  "",
		`{"n":[1]}`:                   `column "n": an element of the list: 1 is not a float32[]`,
		`{"n":[[1],null]}`:            `column "n": an element of the list is null, not a float32[]`,
		`{"n":[[[1]]]}`:               `column "n": an element of the list: [1] is not a float32`,
		`{"n":[["a"]]}`:               `column "n": an element of the list: "a" is not a float32`,
		`{"x":"%"}`:                   `column "x": "%" is not a bytes`,
		`{"file":{"bytes":"YQ=="}}`:   "",
		`{"file":"YQ=="}`:             "",
		`{"file":{}}`:                 "",
		`{"file":null}`:               "",
		`{"file":1}`:                  `column "file": 1 is not a struct(path,bytes)`,
		`{"file":{"path":1}}`:         `column "file": 1 is not a string`,
		`{"file":{"other":"a"}}`:      `column "file": {"other":"a"} is not a struct(path,bytes)`,
		`{"s":["` + strings.Repeat("a", 50) + `"]}`: `column "s": ["` + strings.Repeat("a", 38) + `… is not a string`,
	} {
		got := ""
		if _, err := s.Rows().Append(nil, []byte(line), nil); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	s.Closed = true
	if _, err := s.Rows().Append(nil, []byte(`{"other":1}`), nil); err == nil || !strings.HasPrefix(err.Error(), `"other" is not a column of the output: `) {
		t.Error(err)
	}
	if _, err := s.Rows().Append(nil, []byte(`{"_error":{},"other":1,"id":"x"}`), nil); err != nil {
		t.Error(err)
	}
}

func TestInfer(t *testing.T) {
	var sample Sample
	for _, line := range []string{
		`{"id":1,"f":1,"s":"a","b":true,"n":null,"mixed":1,"list":[1],"lists":[[1]],"words":[],"floats":[1],"big":18446744073709551615,"hash":5,"apart":-1,"huge":18446744073709551616,"hashes":[5]}`,
		`{"id":2,"f":0.5,"s":null,"b":false,"mixed":"a","words":["a, ]","b"],"floats":[0.5],"list":[2, 3 ],"late":1,"hash":9223372036854775808,"apart":9223372036854775808,"hashes":[9223372036854775808],"_error":{}}`,
	} {
		sample.Add([]byte(line))
	}
	got := sample.Columns
	for i := range got {
		got[i].Type = got[i].Type.Settled()
	}
	want := []Column{
		{Name: "id", Type: Int64}, {Name: "f", Type: Float64}, {Name: "s", Type: String}, {Name: "b", Type: Bool},
		{Name: "n", Type: JSON}, {Name: "mixed", Type: JSON}, {Name: "list", Type: Int64.List()}, {Name: "lists", Type: Int64.List().List()}, {Name: "words", Type: String.List()}, {Name: "floats", Type: Float64.List()}, {Name: "big", Type: Uint64}, {Name: "hash", Type: Uint64}, {Name: "apart", Type: JSON}, {Name: "huge", Type: JSON}, {Name: "hashes", Type: Uint64.List()},
		{Name: "late", Type: Int64},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestValidate(t *testing.T) {
	for want, columns := range map[string][]Column{
		`two columns have the name "a"`:                                 {{Name: "a", Type: Int64}, {Name: "a", Type: Int64}},
		"_error is the column of errors, and there already":             {{Name: "_error", Type: JSON}},
		`column "a": unknown type "int"`:                                {{Name: "a", Type: "int"}},
		`column "a": a kernel's values cannot have the type string`:     {{Name: "a", Type: String, Typed: true}},
		"a column has no name":                                          {{Type: Int64}},
		`column "a": unknown type "int64[][][][][][][][][]"`:            {{Name: "a", Type: "int64[][][][][][][][][]"}},
		`column "a": 6 values per row cannot have the dimensions [2 2]`: {{Name: "a", Type: Int64, Width: 6, Dimensions: []int{2, 2}, Typed: true}},
		`column "a": 6 values per row cannot have the dimensions [0 6]`: {{Name: "a", Type: Int64, Width: 6, Dimensions: []int{0, 6}, Typed: true}},
		`column "a": 0 values per row cannot have the dimensions [2 3]`: {{Name: "a", Type: Int64, Dimensions: []int{2, 3}}},
	} {
		if err := (Schema{Columns: columns}).Validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
