package record

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"testing"
)

// listed passes lines on; those of ids are requests.
func listed(ids []string) func(yield func(Line) bool) error {
	return func(yield func(Line) bool) error {
		for i, id := range ids {
			data := []byte(`{"custom_id":"` + id + `"}`)
			if id == "-" {
				data = []byte(`{"custom_id":`)
			}
			if !yield(Line{File: i / 1000, Line: int64(i%1000 + 1), Data: data}) {
				return nil
			}
		}
		return nil
	}
}

func TestDuplicates(t *testing.T) {
	for name, c := range map[string]struct {
		ids  []string
		want []string
	}{
		"none":         {[]string{"a", "b", "c"}, nil},
		"empty":        {nil, nil},
		"two":          {[]string{"a", "b", "a", "c", "b", "a"}, []string{"a 1 3", "b 2 5"}},
		"escapes":      {[]string{"é", `\u00e9`}, []string{"é 1 2"}},
		"not requests": {[]string{"-", "-", "a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			list, err := Duplicates(listed(c.ids))
			for _, d := range list {
				got = append(got, fmt.Sprintf("%s %d %d", d.ID, d.First.Line, d.Second.Line))
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// However few ids are held at a time, every duplicate is found, and no others.
func TestDuplicatesInPasses(t *testing.T) {
	var ids, want []string
	for i := range 5000 {
		ids = append(ids, fmt.Sprint("request-", i))
	}
	for i := range 40 {
		want = append(want, ids[i*113])
		ids = append(ids, ids[i*113])
	}
	d := &duplicates{each: listed(ids), seed: maphash.MakeSeed(), held: 100}
	list, err := d.find()
	var got []string
	for _, one := range list {
		got = append(got, one.ID)
	}
	if err != nil || !slices.Equal(got, want) || d.bits < 5 {
		t.Errorf("%q, %v after %d bits; want %q", got, err, d.bits, want)
	}
}

func TestDuplicatesOfEverything(t *testing.T) {
	ids := slices.Repeat([]string{"a"}, 10)
	for i := range 2000 {
		ids = append(ids, fmt.Sprint(i%1000))
	}
	if list, err := Duplicates(listed(ids)); err != nil || len(list) != listedIDs {
		t.Errorf("%d, %v", len(list), err)
	}
}

func TestDuplicatesUnreadable(t *testing.T) {
	broken := errors.New("broken")
	if _, err := Duplicates(func(func(Line) bool) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}
