package python_test

import (
	"strings"
	"testing"
)

// Standard-library values that have a usual JSON form get it everywhere: in a column, in
// a list of results, within another value.
func TestValuesWithAUsualForm(t *testing.T) {
	const imports = `
import collections, datetime, decimal, enum, pathlib, types, uuid
class Color(enum.Enum): RED = "red"; MIXED = (1, 2)
class Level(enum.IntEnum): HIGH = 3
utc = datetime.timezone.utc
values = {
    "time":     datetime.datetime(2020, 1, 2, 3, 4, 5, 6000),
    "zone":     datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=utc),
    "date":     datetime.date(2020, 1, 2),
    "clock":    datetime.time(3, 4, 5),
    "decimal":  decimal.Decimal("0.10000000000000000000001"),
    "uuid":     uuid.UUID(int=1),
    "path":     pathlib.Path("a/b"),
    "enum":     Color.RED,
    "pair":     Color.MIXED,
    "level":    Level.HIGH,
    "mapping":  types.MappingProxyType({"a": datetime.date(2020, 1, 2)}),
    "user":     collections.UserDict(a=1),
}
class NaT(datetime.datetime):
    def __ne__(self, other): return True
values["no time"] = NaT(1, 1, 1)
def process(batch):
    chosen = [values[k] for k in batch["k"]]
    return %s
`
	want := map[string]string{
		"time": `"2020-01-02T03:04:05.006000"`, "zone": `"2020-01-02T03:04:05+00:00"`, "date": `"2020-01-02"`, "clock": `"03:04:05"`,
		"decimal": `"0.10000000000000000000001"`, "uuid": `"00000000-0000-0000-0000-000000000001"`, "path": `"a/b"`,
		"enum": `"red"`, "pair": `[1,2]`, "level": `3`, "mapping": `{"a":"2020-01-02"}`, "user": `{"a":1}`, "no time": `null`,
	}
	for way, form := range map[string][2]string{
		`{"x": chosen}`:                              {"x=", ""},
		`[{"x": v} for v in chosen]`:                 {`{"x":`, "}"},
		`[{"x": [v, float("nan")]} for v in chosen]`: {`{"x":[`, ",null]}"},
	} {
		k := start(t, strings.Replace(imports, "%s", way, 1))
		var records, results []string
		for name, text := range want {
			records = append(records, `{"k":"`+name+`"}`)
			results = append(results, form[0]+text+form[1])
		}
		expect(t, k, records, results)
	}
}

// A value without a usual form fails only its record, and the error says what to return
// instead.
func TestValuesWithoutAUsualForm(t *testing.T) {
	k := start(t, `
import dataclasses, datetime
@dataclasses.dataclass
class Point: x: int
values = {"bytes": b"a", "set": {1}, "delta": datetime.timedelta(1), "class": Point(1), "complex": 1j, "good": 1}
def process(batch): return {"x": [values[k] for k in batch["k"]]}
`)
	for name, advice := range map[string]string{
		"bytes": "bytes are not a JSON value: decode() text; for other data, return a list of bytes as a column of the batch, or base64.b64encode(data).decode()", "set": "a set is not a JSON value: return a sorted list",
		"delta": "a timedelta is not a JSON value: return its total_seconds()", "class": "a Point is not a JSON value: return dataclasses.asdict(value)",
		"complex": "a complex is not a JSON value",
	} {
		expect(t, k, []string{`{"k":"` + name + `"}`, `{"k":"good"}`}, []string{"failed: column 'x': TypeError: " + advice, "x=1"})
	}
}
