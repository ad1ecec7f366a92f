package record

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"maps"
)

// Line is a line of an input: its number, from 1, in its file. Rows: the file is a table, whose
// rows have numbers.
type Line struct {
	File int
	Line int64
	Rows bool
	Data []byte
}

// Duplicate is a custom_id that occurs more than once, and the first two lines with it.
type Duplicate struct {
	ID            string
	First, Second Line
}

const (
	// heldIDs is how many custom_ids are in memory at a time.
	heldIDs = 4 << 20
	// listedIDs is after how many that may occur more than once the search ends.
	listedIDs = 100
)

// Duplicates returns custom_ids that occur more than once, in the order in which that shows,
// but not necessarily all of them. each passes the lines of a batch file on, until yield
// returns false; it is called several times. The memory does not depend on the number of
// lines: the more there are, the more often they are read.
func Duplicates(each func(yield func(Line) bool) error) ([]Duplicate, error) {
	d := &duplicates{each: each, seed: maphash.MakeSeed(), held: heldIDs}
	return d.find()
}

// duplicates finds ids by their hashes. A pass looks at those that end in certain bits: at
// first all of them, then, when there are too many, half of those, and so on.
type duplicates struct {
	each func(yield func(Line) bool) error
	seed maphash.Seed
	held int
	bits int // that decide
	seen map[uint64]struct{}
	more map[uint64]struct{} // that occur more than once
}

func (d *duplicates) find() ([]Duplicate, error) {
	d.more = make(map[uint64]struct{})
	for ending := uint64(0); ending < 1<<d.bits && len(d.more) < listedIDs; ending++ {
		if err := d.pass(ending); err != nil {
			return nil, err
		}
	}
	d.seen = nil
	if len(d.more) == 0 {
		return nil, nil
	}
	return d.locate()
}

// pass looks for hashes with an ending that occur more than once.
func (d *duplicates) pass(ending uint64) error {
	d.seen = make(map[uint64]struct{})
	return d.each(func(l Line) bool {
		id, ok := plainID(l.Data)
		if !ok {
			return true
		}
		hash := maphash.Bytes(d.seed, id)
		if hash&(1<<d.bits-1) != ending {
			return true
		}
		if _, again := d.seen[hash]; again {
			d.more[hash] = struct{}{}
			return len(d.more) < listedIDs
		}
		d.seen[hash] = struct{}{}
		for ending == 0 && len(d.seen) > d.held { // later passes are as large as the first
			d.bits++
			maps.DeleteFunc(d.seen, func(hash uint64, _ struct{}) bool { return hash&(1<<d.bits-1) != 0 })
		}
		return true
	})
}

// locate compares the ids themselves: different ones may have the same hash.
func (d *duplicates) locate() (list []Duplicate, err error) {
	first := make(map[string]Line)
	listed := make(map[string]bool)
	err = d.each(func(l Line) bool {
		id, ok := plainID(l.Data)
		if !ok {
			return true
		}
		if _, may := d.more[maphash.Bytes(d.seed, id)]; !may {
			return true
		}
		l.Data = nil
		if before, again := first[string(id)]; !again {
			first[string(id)] = l
		} else if !listed[string(id)] {
			listed[string(id)] = true
			list = append(list, Duplicate{ID: string(id), First: before, Second: l})
		}
		return len(list) < listedIDs
	})
	return list, err
}

// plainID returns the custom_id of a request, without quotes and escapes.
func plainID(request []byte) ([]byte, bool) {
	quoted := CustomID(request)
	if quoted == nil {
		return nil, false
	}
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1], true
	}
	var text string
	if json.Unmarshal(quoted, &text) != nil {
		return nil, false
	}
	return []byte(text), true
}
