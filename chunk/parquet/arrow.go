package parquet

import (
	"encoding/base64"

	"github.com/gpurun/gpurun/chunk/arrow"
)

// Arrow returns the schema of the columns as the metadata of Arrow, which other programs find under
// the key ARROW:schema. Rows of a typed column have vectors of a fixed size there if full reports
// that none is null.
func (s Schema) Arrow(full func(column int) bool) string {
	var fields []arrow.Fields
	for i, c := range s.All() {
		sizes := make([]int, c.Depth()) // 0: any
		if c.Typed && full(i) {
			if copy(sizes, c.Dimensions) == 0 && c.Width > 0 {
				sizes[0] = c.Width
			}
		}
		fields = append(fields, arrowField(c.Name, true, sizes, c.Type.Base()))
	}
	message := arrow.Message(arrow.SchemaMessage, arrow.Fields{1: fields}, 0)
	return base64.StdEncoding.EncodeToString(message)
}

// arrowField describes a column, or the element of a list.
func arrowField(name string, nullable bool, sizes []int, base Type) arrow.Fields {
	kind, typ := base.arrow()
	children := []arrow.Fields{}
	if len(sizes) > 0 {
		kind, typ = arrow.List, arrow.Fields{}
		if sizes[0] > 0 {
			kind, typ = arrow.FixedSizeList, arrow.Fields{0: sizes[0]}
		}
		children = append(children, arrowField("element", false, sizes[1:], base))
	}
	return arrow.Fields{0: name, 1: int(truth(nullable)), 2: kind, 3: typ, 5: children}
}

// arrow returns the type of single values, and its parameters.
func (t Type) arrow() (kind int, parameters arrow.Fields) {
	of, _ := t.traits()
	switch of.kind {
	case Bool:
		return arrow.Bool, arrow.Fields{}
	case Float32:
		return arrow.Float, arrow.Fields{0: 1}
	case Float64:
		return arrow.Float, arrow.Fields{0: 2}
	case Bytes:
		return arrow.Binary, arrow.Fields{}
	case fixed:
		return arrow.FixedSizeBinary, arrow.Fields{0: int(of.length)}
	case Date:
		return arrow.Date, arrow.Fields{0: 0}
	case decimal:
		width := 128
		if of.digits > 38 {
			width = 256
		}
		return arrow.Decimal, arrow.Fields{0: of.digits, 1: of.scale, 2: width}
	case Time, TimeUTC:
		return arrow.Time, arrow.Fields{0: int(of.unit), 1: 8 * Size(of.physical, 0)}
	case Timestamp:
		return arrow.Timestamp, arrow.Fields{0: int(of.unit)}
	case TimestampUTC:
		return arrow.Timestamp, arrow.Fields{0: int(of.unit), 1: "UTC"}
	case String, JSON, UUID:
		return arrow.Text, arrow.Fields{}
	}
	return arrow.Int, arrow.Fields{0: of.bits, 1: int(truth(!of.unsigned))}
}
