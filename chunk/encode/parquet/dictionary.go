package parquet

const (
	// maxDictionary is the size from which on a dictionary is full.
	maxDictionary = 1 << 20
	// dictionaryTrial is after how many values a column loses its dictionary if hardly any occurs
	// twice.
	dictionaryTrial = 8192
)

// dictionary has the distinct values of a column. Pages have the places of their values in it,
// until it is full: the values of later pages are plain.
type dictionary struct {
	values []byte
	places map[string]uint32
	used   bool // by a page
	full   bool
}

// open reports whether values go into the dictionary, which may be nil.
func (d *dictionary) open() bool { return d != nil && !d.full }

// index returns the place of a value.
func (d *dictionary) index(value []byte) uint32 {
	at, ok := d.places[string(value)]
	if !ok {
		at = uint32(len(d.places))
		d.places[string(value)] = at
		d.values = append(d.values, value...)
	}
	return at
}

// width returns how many bits a place takes.
func (d *dictionary) width() int { return max(widthOf(uint32(len(d.places))-1), 1) }

// pays reports whether the dictionary and the places take clearly less than the plain values.
func (d *dictionary) pays(plain, values int) bool {
	return len(d.values)+values*d.width()/8 < plain*3/4
}

// appendIndexes appends the values of a page.
func (d *dictionary) appendIndexes(dst []byte, indexes []uint32) []byte {
	places := hybrid{width: d.width()}
	for _, index := range indexes {
		places.add(index, 1)
	}
	d.used, d.full = true, len(d.values) > maxDictionary
	return places.appendTo(append(dst, byte(places.width)), false)
}
