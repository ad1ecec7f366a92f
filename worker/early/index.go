package early

import (
	"iter"
	"maps"
	"slices"
)

// index holds the places of entries by the numbers of their records. Numbers are dense, so it
// consists of pages: millions of answers may wait for one slow record.
type index map[int64]*page

// page holds the places of consecutive records.
type page [pageSize]place

const pageSize = 512

// place is where an entry is in the file, without its header.
type place struct {
	offset  int64 // 0: there is none, because headers come first
	length  uint32
	failure bool
}

func (p place) present() bool { return p.offset > 0 }

func (x index) get(number int64) place {
	if p := x[number/pageSize]; p != nil {
		return p[number%pageSize]
	}
	return place{}
}

func (x index) set(number int64, at place) {
	p := x[number/pageSize]
	if p == nil {
		p = new(page)
		x[number/pageSize] = p
	}
	p[number%pageSize] = at
}

// from yields the places of the records from first on, in order.
func (x index) from(first int64) iter.Seq2[int64, place] {
	return func(yield func(int64, place) bool) {
		for _, key := range slices.Sorted(maps.Keys(x)) {
			for i, at := range x[key] {
				if number := key*pageSize + int64(i); number >= first && at.present() && !yield(number, at) {
					return
				}
			}
		}
	}
}

// bytes returns how many bytes the entries of the records from first on have.
func (x index) bytes(first int64) (n int64) {
	for _, at := range x.from(first) {
		n += headerSize + int64(at.length)
	}
	return n
}

// forget drops pages whose records are all before end.
func (x index) forget(end int64) {
	maps.DeleteFunc(x, func(key int64, _ *page) bool { return (key+1)*pageSize <= end })
}
