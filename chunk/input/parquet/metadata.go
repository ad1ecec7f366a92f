package parquet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
)

// metadata is what the footer says, as far as it is used here.
type metadata struct {
	schema []element
	groups []group
	rows   int64
	signed bool // the file is encrypted, or its footer is signed
	// json are the members whose text is JSON, in a file of gpurun.
	json []string
}

// element is a node of the schema. The nodes are in depth-first order.
type element struct {
	name      string
	children  int64
	physical  int64 // -1: a group
	length    int64 // of a fixed-length value
	repeated  int64
	converted int64 // -1: none
	scale     int64
	precision int64
	logical   logical
}

// logical is the logical type of an element; kind 0 means none.
type logical struct {
	kind   int64
	scale  int64
	digits int64 // of a decimal
	utc    bool
	unit   int64
	signed bool
	bits   int64 // of an integer
}

type group struct {
	rows    int64
	columns []columnChunk
}

type columnChunk struct {
	elsewhere  bool // in another file
	encrypted  bool
	codec      int64
	values     int64
	unpacked   int64
	packed     int64
	dataOffset int64
	dictOffset int64
}

const (
	// footerEnd is the length of the footer and the magic after it.
	footerEnd = 8
	// maxFooter limits the footer. The largest ones in use, of tables with thousands of
	// columns, have tens of megabytes.
	maxFooter = 1 << 30
)

// readMetadata reads the footer of a file.
func readMetadata(r io.ReaderAt, size int64) (*metadata, error) {
	if size < int64(len(spec.Magic))+footerEnd {
		return nil, errors.New("the file is too short to be Parquet")
	}
	end := make([]byte, footerEnd)
	if _, err := r.ReadAt(end, size-footerEnd); err != nil {
		return nil, fmt.Errorf("read the footer: %w", err)
	}
	switch string(end[4:]) {
	case spec.Magic:
	case spec.MagicEncrypted:
		return nil, errors.New("the file is encrypted")
	default:
		return nil, errors.New("the file does not end with a Parquet footer; it is truncated or damaged")
	}
	length := int64(end[0]) | int64(end[1])<<8 | int64(end[2])<<16 | int64(end[3])<<24
	if length > maxFooter || length > size-footerEnd-int64(len(spec.Magic)) {
		return nil, fmt.Errorf("the footer's length, %d bytes, does not fit in the file", length)
	}
	data := make([]byte, length)
	if _, err := r.ReadAt(data, size-footerEnd-length); err != nil {
		return nil, fmt.Errorf("read the footer: %w", err)
	}
	return parseMetadata(data)
}

func parseMetadata(data []byte) (*metadata, error) {
	m := new(metadata)
	r := &thriftReader{data: data}
	r.fields(func(id int64, kind byte) bool {
		switch id {
		case spec.FileSchema:
			r.list(kind, func(byte) { m.schema = append(m.schema, readElement(r)) })
		case spec.FileRows:
			m.rows = r.integer(kind)
		case spec.FileGroups:
			r.list(kind, func(byte) { m.groups = append(m.groups, readGroup(r)) })
		case spec.FileKeyValues:
			r.list(kind, func(byte) { m.readKeyValue(r) })
		case spec.FileEncryption, spec.FileFooterKey:
			m.signed = true
			return false
		default:
			return false
		}
		return true
	})
	if r.err != nil {
		return nil, r.err
	}
	if r.at < len(data) {
		m.signed = true // what follows the metadata is a signature
	}
	return m, nil
}

func (m *metadata) readKeyValue(r *thriftReader) {
	var key, value []byte
	r.fields(func(id int64, kind byte) bool {
		switch id {
		case spec.KeyValueKey:
			key = r.bytes(kind)
		case spec.KeyValueValue:
			value = r.bytes(kind)
		default:
			return false
		}
		return true
	})
	if string(key) == spec.JSONColumns {
		_ = json.Unmarshal(value, &m.json) // if it is damaged, the columns are text
	}
}

func readElement(r *thriftReader) element {
	e := element{physical: -1, converted: -1}
	r.fields(func(id int64, kind byte) bool {
		switch id {
		case spec.ElementPhysical:
			e.physical = r.integer(kind)
		case spec.ElementLength:
			e.length = r.integer(kind)
		case spec.ElementRepetition:
			e.repeated = r.integer(kind)
		case spec.ElementName:
			e.name = string(r.bytes(kind))
		case spec.ElementChildren:
			e.children = r.integer(kind)
		case spec.ElementConverted:
			e.converted = r.integer(kind)
		case spec.ElementScale:
			e.scale = r.integer(kind)
		case spec.ElementPrecision:
			e.precision = r.integer(kind)
		case spec.ElementLogical:
			readLogical(r, kind, &e.logical)
		default:
			return false
		}
		return true
	})
	return e
}

// readLogical reads the union of logical types: a struct with one field, itself a struct.
func readLogical(r *thriftReader, kind byte, l *logical) {
	if kind != spec.ThriftStruct {
		r.fail(errThrift)
		return
	}
	r.fields(func(id int64, kind byte) bool {
		if kind != spec.ThriftStruct {
			return false
		}
		l.kind = id
		r.fields(func(id int64, kind byte) bool {
			switch {
			case l.kind == spec.LogicalDecimal && id == spec.DecimalScale:
				l.scale = r.integer(kind)
			case l.kind == spec.LogicalDecimal && id == spec.DecimalPrecision:
				l.digits = r.integer(kind)
			case (l.kind == spec.LogicalTime || l.kind == spec.LogicalTimestamp) && id == spec.TimeUTC:
				l.utc = kind == spec.ThriftTrue
			case (l.kind == spec.LogicalTime || l.kind == spec.LogicalTimestamp) && id == spec.TimeUnit && kind == spec.ThriftStruct:
				r.fields(func(id int64, _ byte) bool { l.unit = id; return false })
			case l.kind == spec.LogicalInteger && id == spec.IntegerBits:
				l.bits = r.integer(kind)
			case l.kind == spec.LogicalInteger && id == spec.IntegerSigned:
				l.signed = kind == spec.ThriftTrue
			default:
				return false
			}
			return true
		})
		return true
	})
}

func readGroup(r *thriftReader) (g group) {
	r.fields(func(id int64, kind byte) bool {
		switch id {
		case spec.GroupColumns:
			r.list(kind, func(byte) { g.columns = append(g.columns, readChunk(r)) })
		case spec.GroupRows:
			g.rows = r.integer(kind)
		default:
			return false
		}
		return true
	})
	return g
}

func readChunk(r *thriftReader) (c columnChunk) {
	r.fields(func(id int64, kind byte) bool {
		switch {
		case id == spec.ChunkPath:
			c.elsewhere = len(r.bytes(kind)) > 0
		case id == spec.ChunkMeta && kind == spec.ThriftStruct:
			readChunkMetadata(r, &c)
		case id == spec.ChunkEncryption || id == spec.ChunkEncryptedMetadata:
			c.encrypted = true
			return false
		default:
			return false
		}
		return true
	})
	return c
}

func readChunkMetadata(r *thriftReader, c *columnChunk) {
	r.fields(func(id int64, kind byte) bool {
		switch id {
		case spec.ColumnCodec:
			c.codec = r.integer(kind)
		case spec.ColumnValues:
			c.values = r.integer(kind)
		case spec.ColumnUnpacked:
			c.unpacked = r.integer(kind)
		case spec.ColumnPacked:
			c.packed = r.integer(kind)
		case spec.ColumnDataOffset:
			c.dataOffset = r.integer(kind)
		case spec.ColumnDictionaryOffset:
			c.dictOffset = r.integer(kind)
		default:
			return false
		}
		return true
	})
}

// begin returns where the pages of the chunk start.
func (c *columnChunk) begin() int64 {
	if c.dictOffset > 0 {
		return c.dictOffset
	}
	return c.dataOffset
}

// check rejects a footer that contradicts itself or the size of the file.
func (m *metadata) check(size int64) error {
	if m.signed {
		return errors.New("the file is encrypted or signed")
	}
	leaves, err := m.checkSchema()
	if err != nil {
		return err
	}
	rows := int64(0)
	for i, g := range m.groups {
		if err := g.check(size, leaves); err != nil {
			return fmt.Errorf("row group %d: %w", i, err)
		}
		if rows += g.rows; rows < 0 {
			return errors.New("the numbers of rows overflow")
		}
	}
	if rows != m.rows {
		return fmt.Errorf("the footer counts %d rows, but its row groups %d", m.rows, rows)
	}
	return nil
}

// checkSchema checks that the elements form a tree, and counts its leaves.
func (m *metadata) checkSchema() (leaves int, err error) {
	if len(m.schema) < 2 {
		return 0, errors.New("the file has no columns")
	}
	open := []int64{1} // how many elements each level still expects
	for i, e := range m.schema {
		for len(open) > 0 && open[len(open)-1] == 0 {
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			return 0, fmt.Errorf("the schema has %d elements too many", len(m.schema)-i)
		}
		open[len(open)-1]--
		switch {
		case e.children < 0 || e.children > int64(len(m.schema)):
			return 0, fmt.Errorf("column %q has %d members", e.name, e.children)
		case e.children > 0:
			if open = append(open, e.children); len(open) > maxDepth {
				return 0, fmt.Errorf("columns are nested more than %d levels deep", maxDepth)
			}
		case e.physical < 0 || i == 0:
			return 0, fmt.Errorf("column %q has no type", e.name)
		default:
			leaves++
		}
	}
	for _, missing := range open {
		if missing > 0 {
			return 0, errors.New("the schema is truncated")
		}
	}
	if leaves > math.MaxInt16 {
		return 0, fmt.Errorf("the file has %d columns; at most %d are supported", leaves, math.MaxInt16)
	}
	return leaves, nil
}

// maxDepth limits the nesting of columns.
const maxDepth = 64

func (g *group) check(size int64, leaves int) error {
	if g.rows < 0 {
		return fmt.Errorf("%d rows", g.rows)
	}
	if len(g.columns) != leaves {
		return fmt.Errorf("%d columns, but the schema has %d", len(g.columns), leaves)
	}
	for i := range g.columns {
		c := &g.columns[i]
		switch begin := c.begin(); {
		case c.elsewhere:
			return fmt.Errorf("column %d is in another file", i)
		case c.encrypted:
			return fmt.Errorf("column %d is encrypted", i)
		case c.values < 0 || c.packed < 0 || c.unpacked < 0 || begin < 0 || c.dataOffset < 0:
			return fmt.Errorf("column %d has a negative size", i)
		case begin > size-footerEnd || c.packed > size-footerEnd-begin || c.dataOffset > size-footerEnd:
			return fmt.Errorf("column %d ends after the end of the file", i)
		case c.values < g.rows:
			return fmt.Errorf("column %d has %d values for %d rows", i, c.values, g.rows)
		}
	}
	return nil
}
