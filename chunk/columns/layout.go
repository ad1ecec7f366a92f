package columns

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gpurun/gpurun/chunk/encode/npy"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// Kind is the type of a column's values.
type Kind string

// The kinds of values.
const (
	Float16 Kind = "float16"
	Float32 Kind = "float32"
	Float64 Kind = "float64"
	Int64   Kind = "int64"
	Bool    Kind = "bool"
)

// kinds has the size of a value, and NumPy's name of the kind.
var kinds = map[Kind]struct {
	bytes int
	dtype string
}{Bool: {1, "|b1"}, Float16: {2, "<f2"}, Float32: {4, "<f4"}, Float64: {8, "<f8"}, Int64: {8, "<i8"}}

// Bytes returns the size of a value, 0 for an unknown kind.
func (k Kind) Bytes() int { return kinds[k].bytes }

// IsFloat reports whether the values are floating-point numbers.
func (k Kind) IsFloat() bool { return k == Float16 || k == Float32 || k == Float64 }

// Column is a column that all rows have: one value, or Width values if that is not 0.
type Column struct {
	Name  string `json:"name"`
	Kind  Kind   `json:"kind"`
	Width int    `json:"width,omitempty"`
	// Dimensions is set if the values have more than one dimension.
	Dimensions []int `json:"dimensions,omitempty"`
}

// Bytes returns the size of a row's values.
func (c Column) Bytes() int { return c.Kind.Bytes() * max(c.Width, 1) }

// dimensions returns the dimensions of a row's values; none for a single value.
func (c Column) dimensions() []int {
	if len(c.Dimensions) == 0 && c.Width > 0 {
		return []int{c.Width}
	}
	return c.Dimensions
}

// Header returns the header of an array that holds the column.
func (c Column) Header(rows int64) []byte {
	return npy.Header(kinds[c.Kind].dtype, rows, c.dimensions())
}

// hasShape reports whether the dimensions make up the width, and an array can have them.
func (c Column) hasShape() bool {
	width := 1
	for _, n := range c.Dimensions {
		if n < 1 || n > math.MaxInt32/width {
			return false
		}
		width *= n
	}
	return len(c.Dimensions) == 0 || len(c.Dimensions) > 1 && width == c.Width && len(c.Header(math.MaxInt64)) == npy.HeaderBytes
}

// Shape describes the values for messages: float32, or float32[384].
func (c Column) Shape() string {
	if c.Width == 0 {
		return string(c.Kind)
	}
	return string(c.Kind) + strings.ReplaceAll(fmt.Sprint(c.dimensions()), " ", ",")
}

// Layout is what the rows of a job look like. It is fixed once for the whole job.
type Layout struct {
	// Columns are stored as raw values.
	Columns []Column `json:"columns"`
	// Table is the schema of an output that is a table. Its typed columns are Columns.
	Table *parquet.Schema `json:"table,omitempty"`
	// Nulls: a row may lack some of the columns.
	Nulls bool `json:"nulls,omitempty"`
}

// RowBytes returns the size of a row's values.
func (l *Layout) RowBytes() (n int) {
	if l == nil {
		return 0
	}
	for _, c := range l.Columns {
		n += c.Bytes()
	}
	return n
}

// Place returns where the values of a column are in a row, and their size.
func (l *Layout) Place(number int) (start, size int) {
	for _, c := range l.Columns[:number] {
		start += c.Bytes()
	}
	return start, l.Columns[number].Bytes()
}

// Find returns the position of a column, -1 if there is none of that name.
func (l *Layout) Find(name string) int { return find(l.Columns, name) }

func find(columns []Column, name string) int {
	return slices.IndexFunc(columns, func(c Column) bool { return c.Name == name })
}

// maxRow limits the size of a row's values: a row is held in memory.
const maxRow = 1 << 30

// Validate checks a layout that another process sent.
func (l *Layout) Validate() error {
	total := 0
	for _, c := range l.Columns {
		if c.Name == "" || c.Kind.Bytes() == 0 || c.Width < 0 || c.Width > maxRow {
			return fmt.Errorf("invalid column %q of %s", c.Name, c.Shape())
		}
		if !c.hasShape() {
			return fmt.Errorf("column %q: an array with rows of the dimensions %d", c.Name, c.Dimensions)
		}
		if total += c.Bytes(); total > maxRow {
			return errors.New("the columns of a row are too large")
		}
	}
	if l.Table == nil {
		return nil
	}
	return l.Table.Validate()
}

// Shared is the layout of a running job, which is unknown until the first result. It is safe
// for concurrent use.
type Shared struct {
	layout atomic.Pointer[Layout]
	known  chan struct{}
	spec   *Spec
}

// NewShared returns the layout of a job, which is known already unless l is nil.
func NewShared(spec *Spec, l *Layout) *Shared {
	s := &Shared{known: make(chan struct{}), spec: spec}
	if l != nil {
		s.Fix(*l)
	}
	return s
}

// Get returns the layout, nil while it is unknown or if there are no columns.
func (s *Shared) Get() *Layout {
	if s == nil {
		return nil
	}
	return s.layout.Load()
}

// Known is closed when the layout is known; nil if there are no columns.
func (s *Shared) Known() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.known
}

// Fix sets the layout unless it is known already.
func (s *Shared) Fix(l Layout) {
	if s.layout.CompareAndSwap(nil, &l) {
		close(s.known)
	}
}

// Settle fixes the layout of a job that has ended without any result.
func (s *Shared) Settle() {
	if s != nil && s.Get() == nil {
		s.Fix(s.spec.Fallback())
	}
}
