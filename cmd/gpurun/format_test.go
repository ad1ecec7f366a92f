package main

import (
	"strings"
	"testing"
)

// TestJoinTypes: the comma in a type does not separate columns.
func TestJoinTypes(t *testing.T) {
	for text, want := range map[string]string{
		"":     "",
		"a,b":  "a;b",
		"a(,b": "a(;b",
		"day:date,dec:decimal(38,10),x:decimal(5, 2)[],n:uint64": "day:date;dec:decimal(38,10);x:decimal(5, 2)[];n:uint64",
		"image:struct(bytes,path),id":                            "image:struct(bytes,path);id",
		"dec:decimal(38":                                         "dec:decimal(38",
	} {
		var columns []string
		if text != "" {
			columns = strings.Split(text, ",")
		}
		if got := strings.Join(joinTypes(columns), ";"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
