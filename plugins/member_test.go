package plugins

import (
	"math"
	"slices"
	"testing"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// withInputs finds the members as a worker does.
func withInputs(t *testing.T, batch Batch, names ...string) Batch {
	t.Helper()
	var spans []uint32
	wanted := jsonline.Want(names...)
	for i := range batch.Len() {
		var info jsonline.Info
		if err := wanted.Scan(batch.Record(i), &info); err != nil {
			t.Fatal(err)
		}
		for _, span := range info.Spans {
			spans = append(spans, uint32(span.ValueStart), uint32(span.ValueEnd-span.ValueStart))
		}
	}
	return batch.WithInputs(names, spans)
}

var memberTests = []struct {
	record, name string
	value        string // as written; "" if absent
	text         string
	says         string // in Text's error
}{
	{`{"text":"plain"}`, "text", `"plain"`, "plain", ""},
	{`{ "id" : 1 , "text" : "spaced" }`, "text", `"spaced"`, "spaced", ""},
	{`{"text":""}`, "text", `""`, "", ""},
	{`{"text":"\"q\" \\ \u00e9 \ud83d\ude80 \n"}`, "text", `"\"q\" \\ \u00e9 \ud83d\ude80 \n"`, "\"q\" \\ é 🚀 \n", ""},
	{`{"te\u0078t":"escaped name"}`, "text", `"escaped name"`, "escaped name", ""},
	{`{"text":1.50}`, "text", `1.50`, "", `member "text" is not a string`},
	{`{"text":null}`, "text", `null`, "", `member "text" is not a string`},
	{`{"text":{"text":"inner"}}`, "text", `{"text":"inner"}`, "", `member "text" is not a string`},
	{`{"other":"x"}`, "text", "", "", `the record has no member "text"`},
	{`{}`, "text", "", "", `the record has no member "text"`},
	{`["text"]`, "text", "", "", `the record has no member "text"`},
	{`"text"`, "text", "", "", `the record has no member "text"`},
	{`{"":"no name"}`, "", `"no name"`, "no name", ""},
}

// Members are the same whether the worker has located them or Member searches for them.
func TestMember(t *testing.T) {
	for _, test := range memberTests {
		bare := NewBatch([][]byte{[]byte(`{"text":"before it"}`), []byte(test.record)})
		for how, batch := range map[string]Batch{
			"searched": bare, "found": withInputs(t, bare, "id", test.name), "another found": withInputs(t, bare, "absent"),
		} {
			value, present := batch.Member(1, test.name)
			if string(value) != test.value || present != (test.value != "") || cap(value) != len(value) && how == "found" {
				t.Errorf("%s in %s: %q, %v", how, test.record, value, present)
			}
			text, err := batch.Text([]byte("> "), 1, test.name)
			if string(text) != "> "+test.text {
				t.Errorf("%s in %s: text %q", how, test.record, text)
			}
			if (err == nil) != (test.says == "") || err != nil && err.Error() != test.says {
				t.Errorf("%s in %s: %v", how, test.record, err)
			}
		}
	}
}

// Invalid spans are rejected before they are used.
func TestHostileSpans(t *testing.T) {
	names := []string{"a", "b"}
	batch := NewBatch([][]byte{[]byte(`{"a":1}`), []byte(`{}`)})
	good := []uint32{5, 1, 0, 0, 0, 0, 2, 0}
	if _, err := batch.withSpans(names, good); err != nil {
		t.Fatal(err)
	}
	hostile := map[string][]uint32{
		"too few": good[:6], "too many": append(slices.Clone(good), 0, 0), "odd": good[:7],
		"past the record":      {6, 2, 0, 0, 0, 0, 0, 0},
		"of the other record":  {5, 1, 0, 0, 0, 0, 2, 1},
		"largest length":       {1, math.MaxUint32, 0, 0, 0, 0, 0, 0},
		"largest start":        {math.MaxUint32, 1, 0, 0, 0, 0, 0, 0},
		"both":                 {math.MaxUint32, math.MaxUint32, 0, 0, 0, 0, 0, 0},
		"largest start, empty": {math.MaxUint32, 0, 0, 0, 0, 0, 0, 0},
	}
	for name, spans := range hostile {
		if _, err := batch.withSpans(names, spans); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := batch.withSpans(nil, []uint32{0, 0}); err == nil {
		t.Error("spans of no inputs are taken")
	}
	if _, err := NewBatch([][]byte{[]byte(`"`)}).WithInputs([]string{"a"}, []uint32{0, 1}).Text(nil, 0, "a"); err == nil {
		t.Error("a quote alone is a string")
	}
	defer func() {
		if recover() == nil {
			t.Error("WithInputs accepted invalid spans")
		}
	}()
	batch.WithInputs(names, good[:2])
}
